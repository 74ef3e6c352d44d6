// Package model holds no code: beside it are Promela models of the quorum lock, which spin checks state by state.
//
// token.pml is the acquisition on three masters, its token and exclusion, also where a master loses its data; floor.pml
// is the floor of new tokens where clocks differ; queue.pml is waiting, hand-off and the yield of a grant to an older
// hold. run.sh runs the cases of cases.txt and fails where an outcome differs from the
// expected one; some cases are shortcuts of the protocol, each of which must be refuted. README.md tells what is
// modelled, what is left out, and what each shortcut breaks.
package model
