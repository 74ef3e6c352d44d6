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
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// wrongBreak says what is wrong with the flags, or "".
func wrongBreak(name, hold string, token uint64, reason string, limit time.Duration) string {
	var wrong []string
	switch {
	case hold != "" && token != 0:
		wrong = append(wrong, "takes either -hold or -token, not both")
	case hold == "" && token == 0:
		wrong = append(wrong, fmt.Sprintf("needs -hold or -token: fencelock inspect %s shows them", printable(name)))
	}
	if reason == "" {
		wrong = append(wrong, "needs -reason: why, for the process and its log")
	}
	if limit < 0 {
		wrong = append(wrong, "-for must not be negative")
	}
	return strings.Join(wrong, "; ")
}

func defineBreak(flags *flag.FlagSet) func(context.Context, *session) (int, error) {
	hold := flags.String("hold", "", "the `id` of the hold or of the waiter, as inspect shows it")
	token := flags.Uint64("token", 0, "the token of the hold, in place of its id")
	reason := flags.String("reason", "", "why, for the process and its log")
	by := flags.String("by", "", "who, for the process and its log (default user@host)")
	limit := flags.Duration("for", 0, "how long to wait until the hold is gone; 0 is until it is")
	now := flags.Bool("now", false, "free the lock at once: its process may work on beside the next holder until its\n"+
		"next renewal, so this is safe only where the storage checks tokens")
	return func(ctx context.Context, s *session) (int, error) {
		if wrong := wrongBreak(s.name, *hold, *token, *reason, *limit); wrong != "" {
			fmt.Fprintf(s.errs, "fencelock break: %s\n", wrong)
			return 0, errUsage
		}
		s.target.by = cmp.Or(*by, userAtHost())
		c, err := s.target.connect(ctx)
		if err != nil {
			return 0, err
		}
		defer c.close()
		if *limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, *limit)
			defer cancel()
		}
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
		ended := make(chan error, 1)
		go func() { ended <- c.locker.Break(ctx, s.name, id, *reason, opts...) }()
		select {
		case err = <-ended:
		case <-time.After(soon):
			if h, broken := brokenHolder(ctx, c.locker, s.name, id); broken {
				fmt.Fprintf(s.errs, "fencelock: hold %s of %s cannot be renewed any more; waiting until its process gives it "+
					"back, for %s at most; -now frees it at once, but see -h\n", id, printable(h.Meta), brief(h.Remaining))
			}
			err = <-ended
		}
		switch {
		case err == nil:
			fmt.Fprintf(s.out, "%s: hold %s is gone\n", printable(s.name), id)
			return statusOK, nil
		case ctx.Err() == nil:
			return statusNo, notHeld(s, err)
		}
		h, broken := brokenHolder(context.WithoutCancel(ctx), c.locker, s.name, id)
		if !broken {
			return 0, err
		}
		fmt.Fprintf(s.errs, "fencelock: hold %s of %s cannot be renewed any more; it stands until its process gives it "+
			"back, for %s at most\n", id, printable(h.Meta), brief(h.Remaining))
		return statusFailed, nil
	}
}

// soon is in how long a process that hears of a break has given the hold back.
const soon = 300 * time.Millisecond

// brokenHolder returns a hold that is broken and stands.
func brokenHolder(ctx context.Context, l *rwlock.Locker, name, id string) (h rwlock.Holder, broken bool) {
	state, _ := l.Inspect(ctx, name) // with an error too it has what a quorum shows
	i := slices.IndexFunc(state.Holders, func(h rwlock.Holder) bool { return h.Hold == id && h.Broken })
	if i < 0 {
		return h, false
	}
	return state.Holders[i], true
}

// notHeld prints that a hold is gone. It returns any other error.
func notHeld(s *session, err error) error {
	if !errors.Is(err, rwlock.ErrNotHeld) {
		return err
	}
	fmt.Fprintf(s.errs, "fencelock: %s\n", plain(err))
	return nil
}

// holdWith returns the hold with a token. A hold whose tokens the servers do not all show may be the one: the sections
// of an RWMutex use the tokens up to the one that is shown.
func holdWith(ctx context.Context, l *rwlock.Locker, name string, token fencing.Token) (string, error) {
	state, err := l.Inspect(ctx, name)
	var with, perhaps []string
	for _, h := range state.Holders {
		switch {
		case h.Token == token:
			with = append(with, h.Hold)
		case h.Ended:
		case h.Token == 0, h.Shared && h.Mode == rwlock.Write && token < h.Token:
			perhaps = append(perhaps, fmt.Sprintf("%s of %s", h.Hold, printable(h.Meta)))
		}
	}
	switch {
	case len(with) == 1:
		return with[0], nil
	case err != nil:
		return "", err
	case len(with) > 1:
		return "", fmt.Errorf("several holders of lock %q have the token %d: name one by -hold", name, token)
	case len(perhaps) > 0:
		return "", fmt.Errorf("no holder of lock %q shows the token %d, but it may be one of hold %s, which does not "+
			"show all of its tokens: if so, name it by -hold", name, token, strings.Join(perhaps, ", or hold "))
	}
	return "", fmt.Errorf("%w: no holder of lock %q has the token %d", rwlock.ErrNotHeld, name, token)
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
