package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/seed74116694/fencelock/rwlock"
)

func defineInspect(flags *flag.FlagSet) func(context.Context, *session) (int, error) {
	asJSON := flags.Bool("json", false, "one JSON object")
	wide := defineWide(flags)
	return func(ctx context.Context, s *session) (int, error) {
		c, err := s.target.connect(ctx)
		if err != nil {
			return 0, err
		}
		defer c.close()
		state, err := c.locker.Inspect(ctx, s.name)
		if len(state.Masters) == 0 {
			return 0, err
		}
		var failed error
		if *asJSON {
			failed = printJSON(s.out, state, err)
		} else {
			failed = printState(s.out, state, err, cells(*wide))
		}
		if failed != nil {
			return 0, failed
		}
		if err == nil && len(state.Holders) == 0 && len(state.Waiters) == 0 {
			if state.Token == 0 {
				fmt.Fprintf(s.errs, "no such lock has been used in the last hour %s\n", s.target.where())
			}
			return statusNo, nil
		}
		return statusOK, err
	}
}

// modeOf returns the mode of a lock; free if it has no holder, "unknown" if it may have one.
func modeOf(s rwlock.State, failed error, free string) string {
	switch {
	case s.Mode != 0:
		return s.Mode.String()
	case failed != nil:
		return "unknown"
	default:
		return free
	}
}

// inWords says how a lock stands: "orders: held for write by web-1 since 13m0s, 4 wait, token 1795939024320997".
func inWords(s rwlock.State) string {
	text := printable(s.Name) + ": "
	switch longest := (listed{State: s}).held(); len(s.Holders) {
	case 0:
		text += "free"
	case 1:
		if h := s.Holders[0]; h.Ended {
			text += fmt.Sprintf("released by %s, and kept for its minimum for %s", printable(h.Meta), brief(h.Remaining))
			break
		}
		text += fmt.Sprintf("held for %v by %s since %s", s.Mode, printable(s.Holders[0].Meta), brief(longest))
	default:
		text += fmt.Sprintf("held for %v by %d holders, the first since %s", s.Mode, len(s.Holders), brief(longest))
	}
	switch len(s.Waiters) {
	case 0:
	case 1:
		text += ", 1 waits"
	default:
		text += fmt.Sprintf(", %d wait", len(s.Waiters))
	}
	if s.Token == 0 {
		return text + ", without a token"
	}
	return fmt.Sprintf("%s, token %d", text, s.Token)
}

// holderColumns are the columns of a holder. OWNER and NESTED are there if one of the holders needs them: with both, a
// line has more than 100 columns.
func holderColumns(s rwlock.State) (owner, nested bool) {
	for _, h := range s.Holders {
		owner = owner || h.Owner != h.Hold
		nested = nested || h.Count > 1 || h.Shared
	}
	for _, w := range s.Waiters {
		owner = owner || w.Owner != w.Hold
	}
	return owner, nested
}

// row joins the cells of a line, and leaves out empty columns.
func row(w io.Writer, cells ...any) {
	var shown []string
	for _, cell := range cells {
		if cell != nil {
			shown = append(shown, fmt.Sprint(cell))
		}
	}
	fmt.Fprintln(w, strings.Join(shown, "\t"))
}

// only returns a cell of a column that may be left out.
func only(shown bool, text string) any {
	if !shown {
		return nil
	}
	return text
}

func printState(out io.Writer, s rwlock.State, failed error, short cell) error {
	if len(s.Holders) == 0 && failed != nil {
		fmt.Fprintf(out, "%s: unknown\n", printable(s.Name))
	} else {
		fmt.Fprintln(out, inWords(s))
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	owner, nested := holderColumns(s)
	if len(s.Holders) > 0 {
		row(w, "HOLDER", "MODE", "HELD", "LEFT", "HOLD", only(owner, "OWNER"), "TOKEN", only(nested, "NESTED"))
	}
	for _, h := range s.Holders {
		times := fmt.Sprint(h.Count)
		if h.Shared {
			times = "shared"
		}
		row(w, short(h.Meta), h.Mode, brief(h.Held), brief(h.Remaining), printable(h.Hold),
			only(owner, printable(h.Owner)), shownToken(h), only(nested, times))
	}
	if len(s.Waiters) > 0 {
		row(w, "WAITER", "MODE", "WAITED", "", "HOLD", only(owner, "OWNER"))
	}
	for _, q := range s.Waiters {
		row(w, short(q.Meta), q.Mode, brief(q.Waited), "", printable(q.Hold), only(owner, printable(q.Owner)))
	}
	if len(s.Masters) > 1 {
		fmt.Fprintln(w, "MASTER\tHOLDERS\tWAITERS\tTOKEN")
		for _, m := range s.Masters {
			if m.Err != nil {
				fmt.Fprintf(w, "%s\t%s\n", m.Addr, plain(m.Err))
				continue
			}
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\n", m.Addr, len(m.Holders), len(m.Waiters), m.Token)
		}
	}
	return w.Flush()
}
