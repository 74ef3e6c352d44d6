// Command mutants puts deliberate bugs into the sources, one at a time, and runs the test that has to notice each.
//
//	go run -C lab ./mutants                    # every mutant
//	go run -C lab ./mutants -run token         # the mutants with such a name
//	go run -C lab ./mutants -list              # their names, and what each breaks
//	go run -C lab ./mutants -machines          # have each be found by the machine that it names
//	go run -C lab ./mutants -chaos -count 3    # draw some, and have runs of chaos find them
//
// A file of the folder bugs is one mutant. Its header says what the bug breaks, and which command notices it. After
// that it names a source file, and has the text to be replaced on lines that begin with "- ", and the new text on lines
// that begin with "+ ". The old text must occur exactly once in the file. A mutant may have several replacements.
//
// The sources stay as they are: the go command gets the changed files as an overlay. Each command runs once without the
// bug, where it must pass. If it passes with the bug too, all tests of the packages concerned run.
//
// With -machines and -chaos nothing is told of the bug that the program looks for. What chaos runs first depends on the
// files that are changed: forms, faults and deployments that use them. After that the mix of everything runs, on three
// masters and on one. The run that finds a bug is repeated without the bug, and has to pass.
//
// The exit status is 1 if a mutant survives its own command, even if another test notices it.
package main
