package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/internal/errs"
)

// Found makes new masters a set whose first lock is granted at once, by the word of the caller: see masterset.Found. It
// refuses masters that have any key of the prefix.
func Found(ctx context.Context, cfg Config) error {
	e := New(cfg)
	defer e.Close()
	err := e.masterSet.Found(ctx, func() error { return inUse(ctx, e) })
	if cause := errs.Cause(ctx); err != nil && cause != nil && !errors.Is(err, cause) {
		return errs.Join(cause, err)
	}
	return err
}

// inUse returns an error that names a key of the prefix that some master has.
func inUse(ctx context.Context, e *Engine) error {
	for i, m := range e.masters {
		shards, _, err := m.Shards()
		if err != nil {
			return err
		}
		for _, shard := range shards {
			keys, cursor := []string(nil), uint64(0)
			for more := true; more; more = cursor != 0 {
				if keys, cursor, err = shard.Scan(ctx, e.keys.AnyPattern(), cursor); err != nil {
					return fmt.Errorf("master %d (%s) does not list its keys: %w", i, m.Addr(), err)
				}
				if len(keys) > 0 {
					return fmt.Errorf("master %d (%s) has the key %q: it is not new", i, m.Addr(), keys[0])
				}
			}
		}
	}
	return nil
}
