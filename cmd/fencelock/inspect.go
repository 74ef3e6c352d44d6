package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/seed74116694/fencelock/rwlock"
)

func defineInspect(flags *flag.FlagSet) func(context.Context, *session) (int, error) {
	asJSON := flags.Bool("json", false, "one JSON object")
	wide := defineWide(flags)
	return func(ctx context.Context, s *session) (int, error) {
		c, err := s.target.connect()
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

func printState(out io.Writer, s rwlock.State, failed error, short cell) error {
	switch {
	case len(s.Holders) > 0:
		fmt.Fprintf(out, "%s: held for %v, token %d\n", printable(s.Name), s.Mode, s.Token)
	case failed != nil:
		fmt.Fprintf(out, "%s: unknown\n", printable(s.Name))
	case s.Token > 0:
		fmt.Fprintf(out, "%s: free, last token %d\n", printable(s.Name), s.Token)
	default:
		fmt.Fprintf(out, "%s: free, without a token\n", printable(s.Name))
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(s.Holders) > 0 {
		fmt.Fprintln(w, "HOLDER\tMODE\tHELD\tLEFT\tHOLD\tOWNER\tTOKEN\tNESTED")
	}
	for _, h := range s.Holders {
		nested := fmt.Sprint(h.Count)
		if h.Shared {
			nested = "shared"
		}
		fmt.Fprintf(w, "%s\t%v\t%s\t%s\t%s\t%s\t%s\t%s\n",
			short(h.Meta), h.Mode, brief(h.Held), brief(h.Remaining), printable(h.Hold), printable(h.Owner),
			shownToken(h), nested)
	}
	if len(s.Waiters) > 0 {
		fmt.Fprintln(w, "WAITER\tMODE\tWAITED\t\tHOLD\tOWNER\t\t")
	}
	for _, q := range s.Waiters {
		fmt.Fprintf(w, "%s\t%v\t%s\t\t%s\t%s\t\t\n", short(q.Meta), q.Mode, brief(q.Waited),
			printable(q.Hold), printable(q.Owner))
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
