// Package scratch gives tests and benchmarks one temporary folder. A separate process removes the folder when the test
// process has ended, even when the test process was killed and could not remove it itself.
package scratch
