package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/settings"
)

// defineFound founds a set of new masters, as redlock.Found does.
func defineFound(flags *flag.FlagSet) func(context.Context, *session) (int, error) {
	longest := flags.Duration("quarantine", settings.DefaultTTL, "the longest TTL of the application: its "+
		"redlock.WithQuarantine,\nor else its rwlock.WithTTL")
	return func(ctx context.Context, s *session) (int, error) {
		if !s.target.quorum() {
			return 0, fmt.Errorf("found needs all masters of a quorum in -addr: %w", errNoQuorum)
		}
		c, err := s.target.connect(ctx)
		if err != nil {
			return 0, err
		}
		defer c.close()
		all := settings.Default()
		all.Clients, all.Prefix, all.Lock.TTL = c.masters, s.target.prefix, *longest
		if invalid := all.Check(); invalid != nil {
			fmt.Fprintf(s.errs, "fencelock found: -quarantine %v %s\n", invalid.Value, invalid.Rule)
			return 0, errUsage
		}
		if err := engine.Found(ctx, all.Engine()); err != nil {
			return 0, err
		}
		fmt.Fprintf(s.out, "%s are a set now, for TTLs up to %v: the first lock is granted at once\n",
			strings.Join(s.target.addrs, ", "), *longest)
		return statusOK, nil
	}
}

var errNoQuorum = errors.New("one server, Sentinel and Cluster grant their first lock at once")

// firstLock says how long the first lock over masters without markers takes.
func firstLock() string {
	return fmt.Sprintf("not used for locks so far: the first lock takes %v, or the application's longest TTL",
		settings.DefaultTTL.Round(time.Second))
}
