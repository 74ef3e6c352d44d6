package main

import (
	"cmp"
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
	"unicode/utf8"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

func defineList(flags *flag.FlagSet) func(context.Context, *session) (int, error) {
	prefix := flags.String("prefix", "", "only locks whose `names` begin with this")
	older := flags.Duration("older-than", 0, "only locks with a holder since at least so long")
	waiting := flags.Bool("waiting", false, "only locks with waiters")
	free := flags.Bool("free", false, "also free locks that have a token still")
	asJSON := flags.Bool("json", false, "one JSON object per line")
	wide := defineWide(flags)
	limit := flags.Int("limit", 0, "at most so many locks; 0 is all")
	order := flags.String("sort", "name", "by `what`: name, held (the longest first) or waiting (the most first)")
	return func(ctx context.Context, s *session) (int, error) {
		sorted := orders[*order]
		if sorted == nil || *limit < 0 {
			fmt.Fprintln(s.errs, "fencelock list: -sort must be name, held or waiting, and -limit not negative")
			return 0, errUsage
		}
		c, err := s.target.connect(ctx)
		if err != nil {
			return 0, err
		}
		defer c.close()
		var opts []rwlock.ListOption
		if *free {
			opts = append(opts, rwlock.WithFreeLocks())
		}
		status, found, failures := statusOK, 0, 0
		var states []listed
		var once advices
		for state, err := range c.locker.List(ctx, *prefix, opts...) {
			if err != nil {
				status = statusFailed
				if failures++; failures <= maxFailures {
					status = report(ctx, status, once.advised(&s.target, err), s.errs)
				}
			}
			if state.Name != "" {
				found++
			}
			fits := oldEnough(state, *older) && (!*waiting || len(state.Waiters) > 0)
			if state.Name == "" || err == nil && !fits {
				continue
			}
			states = append(states, listed{state, err})
		}
		if more := failures - maxFailures; more > 0 {
			fmt.Fprintf(s.errs, "fencelock: and %d more such errors\n", more)
		}
		slices.SortFunc(states, sorted)
		if more := len(states) - *limit; *limit > 0 && more > 0 {
			states = states[:*limit]
			fmt.Fprintf(s.errs, "fencelock: %d more locks are not shown (-limit)\n", more)
		}
		switch {
		case *asJSON:
			for _, l := range states {
				if err := printJSON(s.out, l.State, l.err); err != nil {
					return 0, err
				}
			}
		case len(states) > 0:
			if err := printTable(s.out, states, *wide); err != nil {
				return 0, err
			}
			fmt.Fprintln(s.out, summary(states))
		case status == statusOK:
			fmt.Fprintln(s.errs, s.noSuchLock(*prefix, found))
		}
		return status, nil
	}
}

// summary counts the locks of a list: "3000 locks, 8 waiting, the oldest held for 13m0s".
func summary(states []listed) string {
	waiting, oldest := 0, time.Duration(0)
	for _, s := range states {
		waiting += len(s.Waiters)
		oldest = max(oldest, s.held())
	}
	text := fmt.Sprintf("%d locks, %d waiting", len(states), waiting)
	if len(states) == 1 {
		text = fmt.Sprintf("1 lock, %d waiting", waiting)
	}
	if oldest > 0 {
		text += ", the oldest held for " + brief(oldest)
	}
	return text
}

// advices have been given before.
type advices []string

func (a *advices) advised(t *target, err error) error {
	if advice := t.advice(err); !slices.Contains(*a, advice) {
		*a = append(*a, advice)
		return t.advised(err)
	}
	return err
}

// maxFailures bounds how many errors a list shows.
const maxFailures = 20

// orders has the values of -sort.
var orders = map[string]func(a, b listed) int{
	"name":    byName,
	"held":    func(a, b listed) int { return cmp.Or(cmp.Compare(b.held(), a.held()), byName(a, b)) },
	"waiting": func(a, b listed) int { return cmp.Or(cmp.Compare(len(b.Waiters), len(a.Waiters)), byName(a, b)) },
}

func byName(a, b listed) int { return strings.Compare(a.Name, b.Name) }

// held returns since when the lock has a holder.
func (l listed) held() (longest time.Duration) {
	for _, h := range l.Holders {
		longest = max(longest, h.Held)
	}
	return longest
}

// cell returns a text for a table: its middle is cut out if it is long.
type cell func(text string) string

// defineWide adds the flag that cuts nothing.
func defineWide(flags *flag.FlagSet) *bool {
	return flags.Bool("wide", false, fmt.Sprintf("cut no text in the table that has more than %d characters", maxCell))
}

const maxCell = 48

func cells(wide bool) cell {
	return func(text string) string {
		text = printable(text)
		all := []rune(text)
		if wide || len(all) <= maxCell {
			return text
		}
		return string(all[:maxCell/2]) + "…" + string(all[len(all)-maxCell/2+1:])
	}
}

// listed is a lock, and why some of it is not known.
type listed struct {
	rwlock.State
	err error
}

// noSuchLock says that list shows nothing, and where it has looked. found is how many locks the other flags have left
// out.
func (s *session) noSuchLock(prefix string, found int) string {
	which := "no lock is in use"
	switch {
	case found == 1:
		which = "1 lock is in use, but it is not such a lock,"
	case found > 1:
		which = fmt.Sprintf("%d locks are in use, but none is such a lock,", found)
	case prefix != "":
		which = fmt.Sprintf("no lock whose name begins with %q is in use", prefix)
	}
	return which + " " + s.target.where()
}

func oldEnough(s rwlock.State, age time.Duration) bool {
	return age <= 0 || slices.ContainsFunc(s.Holders, func(h rwlock.Holder) bool { return h.Held >= age })
}

// printTable prints a line for each holder, or one for a lock without a holder.
func printTable(out io.Writer, states []listed, wide bool) error {
	short := cells(wide)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tMODE\tHOLDER\tHELD\tLEFT\tTOKEN\tWAITING\tLONGEST")
	for _, s := range states {
		waiting, longest := "-", "-"
		if n := len(s.Waiters); n > 0 {
			waiting = strconv.Itoa(n)
			longest = brief(slices.MaxFunc(s.Waiters, func(a, b rwlock.Waiter) int { return int(a.Waited - b.Waited) }).Waited)
		}
		if len(s.Holders) == 0 {
			fmt.Fprintf(w, "%s\t%s\t-\t-\t-\t%d\t%s\t%s\n",
				short(s.Name), modeOf(s.State, s.err, "-"), s.Token, waiting, longest)
		}
		for _, h := range s.Holders {
			fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%s\t%s\t%s\n",
				short(s.Name), h.Mode, short(h.Meta), brief(h.Held), brief(h.Remaining), shownToken(h), waiting, longest)
		}
	}
	return w.Flush()
}

// shownToken returns the token of a hold, and whether it is broken, detached, or has ended before its minimum.
func shownToken(h rwlock.Holder) string {
	text := h.Token.String()
	switch {
	case h.Ended:
		return "-, ended"
	case h.Broken:
		text += ", broken"
	}
	if h.Detached {
		text += ", detached"
	}
	return text
}

// printable returns a text that another process has chosen, so that it cannot control a terminal or look like two
// columns.
func printable(text string) string {
	if text == "" {
		return `""`
	}
	if strings.Contains(text, "  ") || !utf8.ValidString(text) ||
		strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
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

// The JSON form of a state. Times are in milliseconds, and tokens are strings, as package fencing writes them.
type (
	jsonState struct {
		Name    string        `json:"name"`
		Mode    string        `json:"mode,omitempty"` // "unknown" if the lock may be held
		Error   string        `json:"error,omitempty"`
		Token   fencing.Token `json:"token"`
		Holders []jsonHolder  `json:"holders"`
		Waiters []jsonWaiter  `json:"waiters"`
		Masters []jsonMaster  `json:"masters"`
	}
	jsonHolder struct {
		Hold     string        `json:"hold"`
		Owner    string        `json:"owner"`
		Meta     string        `json:"meta"`
		Mode     string        `json:"mode"`
		Count    int           `json:"count"`
		Shared   bool          `json:"shared"`
		Token    fencing.Token `json:"token"`
		Broken   bool          `json:"broken"`
		BrokenBy string        `json:"broken_by,omitempty"`
		Why      string        `json:"broken_why,omitempty"`
		Ended    bool          `json:"ended"`
		Detached bool          `json:"detached"`
		Held     int64         `json:"held_ms"`
		Left     int64         `json:"left_ms"`
	}
	jsonWaiter struct {
		Hold   string `json:"hold"`
		Owner  string `json:"owner"`
		Meta   string `json:"meta"`
		Mode   string `json:"mode"`
		Waited int64  `json:"waited_ms"`
	}
	jsonMaster struct {
		Addr    string        `json:"addr"`
		Token   fencing.Token `json:"token"`
		Holders []jsonHolder  `json:"holders"`
		Waiters []jsonWaiter  `json:"waiters"`
		Error   string        `json:"error,omitempty"`
	}
)

func printJSON(out io.Writer, s rwlock.State, failed error) error {
	j := jsonState{
		Name: s.Name, Mode: modeOf(s, failed, ""), Token: s.Token, Holders: holdersOf(s.Holders),
		Waiters: waitersOf(s.Waiters),
	}
	if failed != nil {
		j.Error = plain(failed)
	}
	for _, m := range s.Masters {
		master := jsonMaster{
			Addr: m.Addr, Token: m.Token, Holders: holdersOf(m.Holders), Waiters: waitersOf(m.Waiters),
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
			h.Hold, h.Owner, h.Meta, h.Mode.String(), h.Count, h.Shared, h.Token, h.Broken,
			h.BrokenBy, h.BrokenWhy, h.Ended, h.Detached, h.Held.Milliseconds(), h.Remaining.Milliseconds(),
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
