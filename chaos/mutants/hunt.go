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

// focus are runs for a part of the sources: there a mutant is looked for before the mix of everything.
var focus = []struct {
	files *regexp.Regexp
	runs  []string // flags of chaos
}{
	{regexp.MustCompile(`^(rwlock/mutex|rwlock/leases|internal/localqueue/)`), []string{
		"-masters 1 -names 1 -workers 8 -forms mutex -gap 2s",
		"-masters 1 -names 3 -workers 6 -forms mutex,lease,operate -gap 1s",
	}},
	{regexp.MustCompile(`^reentrant/`), []string{
		"-masters 1 -names 2 -forms owner,many", "-masters 3 -names 2 -forms owner",
	}},
	{regexp.MustCompile(`^(rwlock|internal/engine)/many`), []string{
		"-masters 1 -names 3 -forms many,lease", "-masters 3 -names 3 -forms many,lease,operate",
	}},
	{regexp.MustCompile(`^internal/engine/adopt`), []string{
		"-masters 3 -names 2 -forms pass,pass,lease", "-masters 1 -names 2 -forms pass,lease,tick",
	}},
	{regexp.MustCompile(`^(internal/engine|scripts)/break`), []string{
		"-masters 1 -names 2 -forms operate,lease,convert,pass", "-masters 3 -names 2 -forms operate,lease,convert,many",
	}},
	{regexp.MustCompile(`^(internal/engine|rwlock)/.*convert|^scripts/settle`), []string{
		"-masters 1 -names 2 -forms convert,mutex", "-masters 3 -names 2 -forms convert,mutex",
	}},
	{regexp.MustCompile(`^internal/(masterset|ballot|transport/id)|^scripts/(vote|marker|raise|regain|yield)`), []string{
		"-masters 3 -faults restart,restart-old,restart-warm,flush,save,demote,cut,freeze-server,kill-worker,replace",
		"-masters 3 -names 2 -faults hold,delay,late,slow,blackhole,lose-reply,lose-command,run-twice,freeze-worker",
		"-masters 5 -names 3",
	}},
	{regexp.MustCompile(`^internal/(transport|engine)/(node|topology|listener|master|handoff)|^scripts/process`), []string{
		"-masters 1 -deployment sentinel", "-masters 1 -deployment cluster -replicas 1",
	}},
}

// runs returns the flags of the runs that look for a mutant, in their order. The mix, on three masters and on one, is
// among them whatever the mutant changes.
func runs(m mutant) (all []string) {
	for _, f := range focus {
		for _, e := range m.edits {
			if f.files.MatchString(e.path) {
				all = append(all, f.runs...)
				break
			}
		}
	}
	return append(all, "-masters 3", "-masters 1")
}

// run returns the i-th run of chaos for a mutant.
func (h *hunt) run(m mutant, i int) command {
	all := runs(m)
	flags := fmt.Sprintf("-gap 400ms %s -for %v -seed %d", all[i%len(all)], oneRun, h.seed+uint64(i))
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
		c := h.run(m, i)
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
	missed := result{killer: "none", after: time.Since(began), command: h.run(m, 0)}
	return missed, fmt.Errorf("chaos finds nothing in %v", missed.after.Round(time.Second))
}
