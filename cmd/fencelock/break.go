package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/user"
	"slices"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

func defineBreak(flags *flag.FlagSet) func(context.Context, *session) (int, error) {
	hold := flags.String("hold", "", "the `id` of the hold or of the waiter, as inspect shows it")
	token := flags.Uint64("token", 0, "the token of the hold, in place of its id")
	reason := flags.String("reason", "", "why, for the process and its log")
	by := flags.String("by", "", "who, for the process and its log (default user@host)")
	now := flags.Bool("now", false, "free the lock at once: its process may work on beside the next holder until its\n"+
		"next renewal, so this is safe only where the storage checks tokens")
	return func(ctx context.Context, s *session) (int, error) {
		if (*hold == "") == (*token == 0) || *reason == "" {
			fmt.Fprintln(s.errs, "fencelock break: needs -reason, and either -hold or -token")
			return 0, errUsage
		}
		s.target.by = cmp.Or(*by, userAtHost())
		c, err := s.target.connect()
		if err != nil {
			return 0, err
		}
		defer c.close()
		id := *hold
		if id == "" {
			if id, err = holdWith(ctx, c.locker, s.name, fencing.Token(*token)); err != nil {
				return statusNo, notHeld(s, err)
			}
		}
		var opts []rwlock.BreakOption
		if *now {
			opts = append(opts, rwlock.BreakNow())
		}
		err = c.locker.Break(ctx, s.name, id, *reason, opts...)
		switch {
		case err == nil:
			fmt.Fprintf(s.out, "%s: hold %s is gone\n", printable(s.name), id)
			return statusOK, nil
		case ctx.Err() != nil:
			fmt.Fprintf(s.errs, "fencelock: hold %s cannot be renewed any more; it stands until its process gives it back or "+
				"its time is over\n", id)
		}
		return statusNo, notHeld(s, err)
	}
}

// notHeld prints that a hold is gone. It returns any other error.
func notHeld(s *session, err error) error {
	if !errors.Is(err, rwlock.ErrNotHeld) {
		return err
	}
	fmt.Fprintf(s.errs, "fencelock: %s\n", plain(err))
	return nil
}

// holdWith returns the hold with a token.
func holdWith(ctx context.Context, l *rwlock.Locker, name string, token fencing.Token) (string, error) {
	state, err := l.Inspect(ctx, name)
	if err != nil {
		return "", err
	}
	has := func(h rwlock.Holder) bool { return h.Token == token }
	i := slices.IndexFunc(state.Holders, has)
	switch {
	case i < 0:
		return "", fmt.Errorf("%w: no holder of lock %q has the token %d", rwlock.ErrNotHeld, name, token)
	case slices.ContainsFunc(state.Holders[i+1:], has):
		return "", fmt.Errorf("several holders of lock %q have the token %d: name one by -hold", name, token)
	}
	return state.Holders[i].Hold, nil
}

func userAtHost() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
