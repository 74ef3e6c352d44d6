package rwlock_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// Each section tells of the loss of its own lock, once, whatever the work has told of others.
func TestDoTellsOfEachLossOnce(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		var own error // of the inner lock, as the work noticed it
		for _, noticed := range []bool{false, true} {
			err := p.Do(w.Ctx, "a", func(ctx context.Context) error {
				return p.Do(ctx, "b", func(ctx context.Context) error {
					w.FlushAll()
					<-ctx.Done()
					if own = context.Cause(ctx); noticed {
						return own
					}
					return nil
				})
			})
			several, ok := err.(interface{ Unwrap() []error })
			require.True(w, ok, "%v", err)
			var names []string
			for _, each := range several.Unwrap() {
				lost, ok := errors.AsType[*rwlock.LostError](each)
				require.True(w, ok, "%v", each)
				names = append(names, lost.Name)
			}
			require.ElementsMatch(w, []string{"a", "b"}, names, "noticed: %v", noticed)
		}
	})
}
