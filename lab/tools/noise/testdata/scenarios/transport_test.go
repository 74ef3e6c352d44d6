package scenarios_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/lab/tools/noise/explore"
	"github.com/seed74116694/fencelock/lab/tools/noise/schedulenoise"
)

type callKey struct{}

// A callee may look at the context of its call at any time: when the call is over, and when the next call has begun.
// The timer of a dial's child context does.
func TestACalleeKeepsTheContextOfItsCall(t *testing.T) {
	n := explore.Run(t, explore.Unbounded, func(*testing.T) explore.World {
		var m transport.Master
		var failure error
		begin := func(call int) *transport.Timed {
			return m.Timed(context.WithValue(context.Background(), callKey{}, call), time.Hour)
		}
		first := begin(1)
		caller := func() {
			first.Stop()
			second := begin(2)
			schedulenoise.Point()
			second.Stop()
		}
		callee := func() {
			for range 2 {
				failure = errors.Join(failure, look(first, 1))
				schedulenoise.Point()
			}
		}
		return explore.World{Goroutines: []func(){caller, callee}, Check: func() error { return failure }}
	})
	t.Logf("%d schedules", n)
}

// look does with a context what the standard library does with the parent of a context that ends.
func look(ctx context.Context, call int) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the context of a call panics: %v", r)
		}
	}()
	switch value := ctx.Value(callKey{}); {
	case ctx.Done() == nil || ctx.Err() != nil:
		return errors.New("the context of a call has ended before its time")
	case value != call:
		return fmt.Errorf("the context of call %d has the values of call %v", call, value)
	}
	return nil
}
