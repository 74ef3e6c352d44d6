package main

import (
	"bytes"
	"io"
)

// aside passes on, from a goroutine of its own, what is written while locks are held. Standard error may be a pipe that
// no process reads, or a terminal that Ctrl-S stops: the command is ended in time, and the locks are released, all the
// same. One goroutine writes at a time.
type aside struct {
	lines chan []byte
	ended chan struct{}
}

func newAside(w io.Writer) *aside {
	const room = 64 // for more lines than one call prints
	a := &aside{lines: make(chan []byte, room), ended: make(chan struct{})}
	go func() {
		for line := range a.lines {
			_, _ = w.Write(line)
		}
		close(a.ended)
	}()
	return a
}

// Write never blocks: a line that has no room is left out.
func (a *aside) Write(line []byte) (int, error) {
	select {
	case a.lines <- bytes.Clone(line):
	default:
	}
	return len(line), nil
}

// end returns when all is written.
func (a *aside) end() {
	close(a.lines)
	<-a.ended
}
