package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

func defineWatch(flags *flag.FlagSet) func(context.Context, *session) (int, error) {
	every := flags.Duration("every", 500*time.Millisecond, "how often the masters are asked; what is shorter is not seen")
	limit := flags.Duration("for", 0, "how long to watch; 0 is until it is interrupted")
	asJSON := flags.Bool("json", false, "the whole state as a JSON object for each change")
	return func(ctx context.Context, s *session) (int, error) {
		if *every <= 0 || *limit < 0 {
			fmt.Fprintln(s.errs, "fencelock watch: -every must be positive, and -for not negative")
			return 0, errUsage
		}
		c, err := s.target.connect(ctx)
		if err != nil {
			return 0, err
		}
		defer c.close()
		watched := ctx
		if *limit > 0 {
			var cancel context.CancelFunc
			watched, cancel = context.WithTimeout(ctx, *limit)
			defer cancel()
		}
		v := viewer{s: s, asJSON: *asJSON}
		for {
			asked := time.Now()
			state, err := c.locker.Inspect(watched, s.name)
			if watched.Err() != nil { // the end of -for, or an interrupt: both as wanted
				return v.status, nil
			}
			if errors.Is(err, rwlock.ErrOption) {
				return 0, err
			}
			if err := v.show(state, err, asked); err != nil {
				return 0, err
			}
			select {
			case <-time.After(*every):
			case <-watched.Done():
			}
		}
	}
}

// viewer prints what has changed since the last state.
type viewer struct {
	s      *session
	asJSON bool
	begun  bool
	last   rwlock.State
	at     time.Time // when last was asked for
	fault  string    // of the last answer
	status int       // of the last answer
}

func (v *viewer) show(state rwlock.State, failed error, asked time.Time) error {
	fault := ""
	v.status = statusOK
	if failed != nil {
		fault, v.status = plain(failed), statusFailed
	}
	turned := fault != v.fault
	if turned {
		v.fault = fault
		if failed == nil {
			fault = "answers again"
		}
		fmt.Fprintf(v.s.errs, "fencelock: %s\n", fault)
	}
	var changes []string
	if failed == nil { // what is not known has not changed
		changes = v.changes(state)
		v.begun, v.last, v.at = true, state, asked
	}
	if v.asJSON {
		if len(changes) == 0 && !turned {
			return nil
		}
		return printJSON(v.s.out, state, failed)
	}
	now := time.Now().Format("15:04:05.000")
	for _, change := range changes {
		if _, err := fmt.Fprintf(v.s.out, "%s  %s\n", now, change); err != nil {
			return err
		}
	}
	return nil
}

// changes returns a line for each hold that has come, gone or been broken. A hold is expired if it is gone and the time
// that it had left is over. A waiter that has left was served and gave the lock back
// between two questions, or gave up.
func (v *viewer) changes(state rwlock.State) (lines []string) {
	had := func(id string) bool {
		return slices.ContainsFunc(v.last.Holders, func(h rwlock.Holder) bool { return h.Hold == id })
	}
	wasBroken := func(id string) bool {
		return slices.ContainsFunc(v.last.Holders, func(h rwlock.Holder) bool { return h.Hold == id && h.Broken })
	}
	wasEnded := func(id string) bool {
		return slices.ContainsFunc(v.last.Holders, func(h rwlock.Holder) bool { return h.Hold == id && h.Ended })
	}
	waited := func(id string) bool {
		return slices.ContainsFunc(v.last.Waiters, func(w rwlock.Waiter) bool { return w.Hold == id })
	}
	holds := func(id string) bool {
		return slices.ContainsFunc(state.Holders, func(h rwlock.Holder) bool { return h.Hold == id })
	}
	waits := func(id string) bool {
		return slices.ContainsFunc(state.Waiters, func(w rwlock.Waiter) bool { return w.Hold == id })
	}
	for _, h := range v.last.Holders {
		if !holds(h.Hold) {
			end := "gone"
			if time.Since(v.at)+time.Millisecond >= h.Remaining { // in whole milliseconds
				end = "expired"
			}
			lines = append(lines, fmt.Sprintf("%-7s  %s  %s  %s", end, h.Mode, printable(h.Meta), printable(h.Hold)))
		}
	}
	for _, w := range v.last.Waiters {
		if !waits(w.Hold) && !holds(w.Hold) {
			lines = append(lines, fmt.Sprintf("left     %s  %s  %s", w.Mode, printable(w.Meta), printable(w.Hold)))
		}
	}
	for _, h := range state.Holders {
		line := fmt.Sprintf("%s  %s  %s  token %s", h.Mode, printable(h.Meta), printable(h.Hold), h.Token)
		if h.Ended && !wasEnded(h.Hold) {
			line = fmt.Sprintf("ended    %s  %s  %s", h.Mode, printable(h.Meta), printable(h.Hold))
			lines = append(lines, line+", stands for its minimum, "+brief(h.Remaining))
		} else if !h.Ended && !had(h.Hold) {
			lines = append(lines, "holds    "+line+", since "+brief(h.Held))
		}
		if h.Broken && !wasBroken(h.Hold) {
			if h.BrokenBy != "" {
				line += ", by " + printable(h.BrokenBy) + ": " + printable(h.BrokenWhy)
			}
			lines = append(lines, "broken   "+line+", stands for "+brief(h.Remaining)+" at most")
		}
	}
	for _, w := range state.Waiters {
		if !waited(w.Hold) {
			line := fmt.Sprintf("waits    %s  %s  %s", w.Mode, printable(w.Meta), printable(w.Hold))
			lines = append(lines, line+", since "+brief(w.Waited))
		}
	}
	if len(state.Holders) == 0 && len(state.Waiters) == 0 && (!v.begun || len(v.last.Holders)+len(v.last.Waiters) > 0) {
		lines = append(lines, fmt.Sprintf("free     last token %d", state.Token))
	} else if len(lines) == 0 && v.begun && state.Token != v.last.Token {
		lines = append(lines, fmt.Sprintf("taken and given back, last token %d", state.Token))
	}
	return lines
}
