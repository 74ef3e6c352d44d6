package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/seed74116694/fencelock/rwlock"
)

func defineList(flags *flag.FlagSet) func(context.Context, *session) (int, error) {
	prefix := flags.String("prefix", "", "only locks whose `names` begin with this")
	older := flags.Duration("older-than", 0, "only locks with a holder since at least so long")
	waiting := flags.Bool("waiting", false, "only locks with waiters")
	free := flags.Bool("free", false, "also free locks that have a token still")
	asJSON := flags.Bool("json", false, "one JSON object per line")
	return func(ctx context.Context, s *session) (int, error) {
		c, err := s.target.connect()
		if err != nil {
			return 0, err
		}
		defer c.close()
		var opts []rwlock.ListOption
		if *free {
			opts = append(opts, rwlock.WithFreeLocks())
		}
		status := statusOK
		var states []rwlock.State
		for state, err := range c.locker.List(ctx, *prefix, opts...) {
			if err != nil {
				status = report(ctx, statusFailed, err, s.errs)
			}
			if state.Name == "" || !oldEnough(state, *older) || *waiting && len(state.Waiters) == 0 {
				continue
			}
			if *asJSON {
				if err := printJSON(s.out, state); err != nil {
					return 0, err
				}
				continue
			}
			states = append(states, state)
		}
		if *asJSON {
			return status, nil
		}
		if len(states) == 0 && status == statusOK {
			fmt.Fprintln(s.errs, "no such lock is in use")
			return status, nil
		}
		slices.SortFunc(states, func(a, b rwlock.State) int { return strings.Compare(a.Name, b.Name) })
		return status, printTable(s.out, states)
	}
}

func oldEnough(s rwlock.State, age time.Duration) bool {
	return age <= 0 || slices.ContainsFunc(s.Holders, func(h rwlock.Holder) bool { return h.Held >= age })
}

// printTable prints a line for each holder, or one for a lock without a holder.
func printTable(out io.Writer, states []rwlock.State) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tMODE\tHOLDER\tHELD\tLEFT\tTOKEN\tWAITING\tLONGEST")
	for _, s := range states {
		waiting, longest := "-", "-"
		if n := len(s.Waiters); n > 0 {
			waiting = strconv.Itoa(n)
			longest = brief(slices.MaxFunc(s.Waiters, func(a, b rwlock.Waiter) int { return int(a.Waited - b.Waited) }).Waited)
		}
		if len(s.Holders) == 0 {
			fmt.Fprintf(w, "%s\t-\t-\t-\t-\t%d\t%s\t%s\n", printable(s.Name), s.Token, waiting, longest)
		}
		for _, h := range s.Holders {
			fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%s\t%s\t%s\n",
				printable(s.Name), h.Mode, printable(h.Meta), brief(h.Held), brief(h.Remaining), shownToken(h), waiting, longest)
		}
	}
	return w.Flush()
}

// shownToken returns the token of a hold, and whether it is broken.
func shownToken(h rwlock.Holder) string {
	if h.Broken {
		return "broken"
	}
	return h.Token.String()
}

// printable returns a text that another process has chosen, so that it cannot control a terminal or look like two
// columns.
func printable(text string) string {
	if text == "" {
		return `""`
	}
	if strings.Contains(text, "  ") || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// brief rounds a time to what a reader needs of it.
func brief(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	default:
		return d.Round(time.Second).String()
	}
}

// The JSON form of a state. Times are in milliseconds.
type (
	jsonState struct {
		Name    string       `json:"name"`
		Mode    string       `json:"mode,omitempty"`
		Token   uint64       `json:"token"`
		Holders []jsonHolder `json:"holders"`
		Waiters []jsonWaiter `json:"waiters"`
		Masters []jsonMaster `json:"masters"`
	}
	jsonHolder struct {
		Hold      string `json:"hold"`
		Owner     string `json:"owner"`
		Meta      string `json:"meta"`
		Mode      string `json:"mode"`
		Count     int    `json:"count"`
		Shared    bool   `json:"shared"`
		Token     uint64 `json:"token"`
		Broken    bool   `json:"broken"`
		Held      int64  `json:"held_ms"`
		Remaining int64  `json:"remaining_ms"`
	}
	jsonWaiter struct {
		Hold   string `json:"hold"`
		Owner  string `json:"owner"`
		Meta   string `json:"meta"`
		Mode   string `json:"mode"`
		Waited int64  `json:"waited_ms"`
	}
	jsonMaster struct {
		Addr    string       `json:"addr"`
		Token   uint64       `json:"token"`
		Holders []jsonHolder `json:"holders"`
		Waiters []jsonWaiter `json:"waiters"`
		Error   string       `json:"error,omitempty"`
	}
)

func printJSON(out io.Writer, s rwlock.State) error {
	j := jsonState{Name: s.Name, Token: uint64(s.Token), Holders: holdersOf(s.Holders), Waiters: waitersOf(s.Waiters)}
	if s.Mode != 0 {
		j.Mode = s.Mode.String()
	}
	for _, m := range s.Masters {
		master := jsonMaster{
			Addr: m.Addr, Token: uint64(m.Token), Holders: holdersOf(m.Holders), Waiters: waitersOf(m.Waiters),
		}
		if m.Err != nil {
			master.Error = plain(m.Err)
		}
		j.Masters = append(j.Masters, master)
	}
	return json.NewEncoder(out).Encode(j)
}

func holdersOf(all []rwlock.Holder) []jsonHolder {
	list := make([]jsonHolder, 0, len(all)) // never null
	for _, h := range all {
		list = append(list, jsonHolder{
			h.Hold, h.Owner, h.Meta, h.Mode.String(), h.Count, h.Cohort, uint64(h.Token), h.Broken,
			h.Held.Milliseconds(), h.Remaining.Milliseconds(),
		})
	}
	return list
}

func waitersOf(all []rwlock.Waiter) []jsonWaiter {
	list := make([]jsonWaiter, 0, len(all))
	for _, w := range all {
		list = append(list, jsonWaiter{w.Hold, w.Owner, w.Meta, w.Mode.String(), w.Waited.Milliseconds()})
	}
	return list
}
