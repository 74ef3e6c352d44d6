// Package scratch holds together what tests and benchmarks put into the temporary folder. A process of its own removes
// it when theirs has ended, also when that was killed and could do nothing itself.
package scratch
