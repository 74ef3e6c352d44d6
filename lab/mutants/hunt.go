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

// oneRun is how long faults strike in a run of chaos. It has the time without faults that some promises need. The run
// takes about 20 s more, unless a script differs from its model: that ends it.
const oneRun = 30 * time.Second

// Where the runs take place: on one embedded server, on three, and on those of a group behind sentinels.
const (
	one    = "-deployment embedded -masters 1"
	three  = "-deployment embedded -masters 3"
	behind = "-deployment sentinel -masters 1"
)

// Faults that go together.
const (
	calm      = " -faults script-flush -gap 20s" // nothing strikes for most of the time
	slowLinks = " -faults delay,slow,late,hold,lose-messages,duplicate-messages"
	badLinks  = " -faults cut,refuse,blackhole,hold,half-open,mute-reply,lose-reply,lose-command,stray,freeze-server"
	oblivion  = " -faults flush,restart,restart-old,restart-warm,demote,clock,cut,refuse,kill-worker"
	deaths    = " -faults kill-worker,freeze-worker,kill-listeners,cut,run-twice,stray,lose-messages"
)

// focus are runs for a part of the sources: there a mutant is looked for before the mix of everything.
var focus = []struct {
	files *regexp.Regexp
	runs  []string // flags of chaos
}{
	{regexp.MustCompile(`^(rwlock/mutex|internal/localqueue/)`), []string{
		one + " -names 2 -workers 6 -forms mutex" + calm,
		one + " -names 2 -workers 8 -processes 1 -forms mutex -gap 2s",
		one + " -names 2 -workers 6 -forms mutex,mutex,operate -long 20 -faults pause-worker,freeze-worker,cut -gap 1s",
	}},
	{regexp.MustCompile(`^reentrant/`), []string{
		one + " -names 2 -forms owner" + calm, three + " -names 2 -forms owner,owner,operate" + deaths,
	}},
	{regexp.MustCompile(`^(rwlock|internal/engine)/many|^internal/settings/`), []string{
		one + " -names 3 -forms many,lease" + calm, three + " -names 3 -forms many,lease,operate" + slowLinks,
	}},
	{regexp.MustCompile(`^internal/engine/convert|^rwlock/ticket`), []string{
		one + " -names 1 -forms pass" + calm, three + " -names 1 -forms pass,pass,lease,operate" + slowLinks,
		three + " -names 2 -forms pass -long 10" + badLinks,
	}},
	{regexp.MustCompile(`^internal/admin/|^scripts/break`), []string{
		one + " -names 1 -forms operate,lease,convert,pass,owner -long 20" + deaths,
		three + " -names 1 -forms operate,lease,convert,many" + slowLinks,
	}},
	{regexp.MustCompile(`^(internal/engine|rwlock)/.*convert`), []string{
		one + " -names 1 -forms convert,convert,operate -long 20" + slowLinks, three + " -names 1 -forms convert" + deaths,
	}},
	{regexp.MustCompile(`^scripts/(acquire|join|lock|release|settle|break|process|refresh|renew)`), []string{
		one + " -names 2 -gap 200ms", three + " -names 2 -gap 200ms",
		one + " -names 1 -workers 8 -forms pass,operate,tick,owner,convert,mutex -long 10" + deaths + ",clock,demote",
	}},
	{regexp.MustCompile(`^internal/(ballot|engine/masters)|^scripts/(acquire|lock|raise|regain|vote|yield)`), []string{
		three + " -names 2 -forms lease,lease,convert,pass -long 10 -faults " +
			"delay,slow,late,hold,run-twice,stray,lose-command,freeze-server,clock,duplicate-messages -gap 200ms",
	}},
	{regexp.MustCompile(`^internal/(masterset|transport/ma)|^scripts/(marker|refresh|regain|renew|settle|vote)`), []string{
		three + " -names 2 -long 10" + oblivion + " -gap 200ms", three + " -faults demote,refuse,blackhole -gap 300ms",
		"-masters 3 -faults restart,restart-old,restart-warm,flush,save,demote,cut,freeze-server,kill-worker,replace",
	}},
	{regexp.MustCompile(`^internal/engine/(handoff|hold|renew|wait)|^internal/(ballot|schedule)/`), []string{
		one + " -names 2 -forms lease,lease,pass,mutex -long 6" + slowLinks,
		three + " -names 2 -forms lease,lease,convert -long 6" + badLinks,
	}},
	{regexp.MustCompile(`^internal/engine/(acquire|release)|^internal/releases/`), []string{
		one + " -names 2 -forms lease,tick" + calm, one + " -names 2 -forms lease,many,mutex" + badLinks + " -gap 3s",
		three + " -names 2 -forms lease,lease,tick" + badLinks,
	}},
	{regexp.MustCompile(`^internal/transport/`), []string{
		one + " -names 4 -forms lease" + badLinks, three + " -names 4 -forms lease,tick" + badLinks,
	}},
	{regexp.MustCompile(`^internal/timerqueue/`), []string{
		one + " -names 12 -workers 16 -forms lease -long 4 -gap 3s",
	}},
	{regexp.MustCompile(`^internal/(transport|engine)/(handoff|listener|master|node|renewals)|^scripts/process`), []string{
		behind + " -replicas 2 -long 10 -faults freeze-server,failover,crash,demote", "-deployment cluster -replicas 1",
		"-masters 1 -replicas 1 -forms lease,operate",
	}},
}

// everything is the mix. It comes last, whatever a mutant changes.
var everything = []string{three, one, "-masters 3", "-masters 1"}

// runs returns the flags of the runs that look for a mutant, in their order.
func runs(m mutant) (all []string) {
	for _, f := range focus {
		for _, e := range m.edits {
			if f.files.MatchString(e.path) {
				all = append(all, f.runs...)
				break
			}
		}
	}
	return append(all, everything...)
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
