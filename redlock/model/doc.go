// Package model contains no code. Its folder has Promela models of the quorum lock, which spin checks state by state.
//
// token.pml models the acquisition on three masters, its token and exclusion, also if a master loses its data.
// floor.pml models the token floor if clocks differ. queue.pml models waiting, hand-off and the yield of a grant to an
// older hold. run.sh runs the cases of cases.txt and fails if an outcome differs from the expected one. Some cases are
// shortcuts of the protocol, and the model must refute each of them. README.md says what is modelled and what is left
// out, and run.sh prints what a shortcut breaks.
package model
