package main

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"time"
)

// hunt has chaos look for mutants. Its programs have scheduling noise.
type hunt struct {
	*lab
	seed   uint64
	within time.Duration
	out    io.Writer
}

// sections is the number of sections of a run.
var sections = regexp.MustCompile(`(?m)^\d+ sections`)

// oneRun is how long faults strike in a run of chaos. The run takes about 20 s more.
const oneRun = 45 * time.Second

// run returns the i-th run of chaos. Every second one has a single master.
func (h *hunt) run(i int) command {
	masters := 3 - 2*(i%2)
	flags := fmt.Sprintf("-masters %d -for %v -gap 400ms -seed %d", masters, oneRun, h.seed+uint64(i))
	c, err := parseCommand(chaos + flags)
	if err != nil {
		panic(err) // not reached: the command is a run of chaos
	}
	c.noisy = true
	return c
}

// try runs chaos with the bug, until a run breaks a promise or the time is over. That very run has to pass without the
// bug.
func (h *hunt) try(ctx context.Context, m mutant) (result, error) {
	files, err := m.apply(h.root)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	for i := 0; time.Since(began)+oneRun < h.within; i++ {
		c := h.run(i)
		r, err := h.lab.run(ctx, c, files)
		if err != nil {
			return r, err
		}
		fmt.Fprintf(h.out, "%s: %s: %s\n", m.name, c.text, sections.FindString(r.output))
		if r.killer != "" {
			r.after = time.Since(began)
			return r, h.requirePassing(ctx, c)
		}
	}
	missed := result{killer: "none", after: time.Since(began), command: h.run(0)}
	return missed, fmt.Errorf("chaos finds nothing in %v", missed.after.Round(time.Second))
}
