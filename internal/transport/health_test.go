package transport_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// urgentGap is the shortest pause between attempts at a master that fails.
const urgentGap = 20 * time.Millisecond

func TestBackoffDoublesWithinItsLimits(t *testing.T) {
	for failures := range 100 {
		most := min(transport.BackoffMin<<min(failures, 20), transport.BackoffMax)
		var short, long bool
		for range 300 {
			wait := transport.Backoff(failures)
			require.GreaterOrEqual(t, wait, most/2)
			require.LessOrEqual(t, wait, most)
			short, long = short || wait < most*5/8, long || wait > most*7/8
		}
		require.True(t, short && long, "it is spread")
	}
}

// failing returns a master whose link is refused, after its first failure.
func failing(t *testing.T) (*bed, *testredis.Link, *tuned) {
	link := testredis.NewMini(t).NewLink()
	client := dial(t, link.Option())
	b := newBed(t, client)
	b.mustDo()
	link.Refuse()
	link.Cut()
	synctest.Wait()
	require.False(t, b.Failing())
	require.Error(t, b.do(context.Background()))
	require.True(t, b.Failing())
	return b, link, client
}

func TestBackgroundWorkWaitsLongerWithEachFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := failing(t)
		for failures := range 12 {
			until, cause := b.Backoff(b.now().Mono)
			wait, most := until-b.now().Mono, min(transport.BackoffMin<<failures, transport.BackoffMax)
			require.Error(t, cause)
			require.GreaterOrEqual(t, wait, most/2)
			require.LessOrEqual(t, wait, most)
			time.Sleep(max(wait, urgentGap))
			_, cause = b.Backoff(b.now().Mono)
			require.NoError(t, cause)
			require.Error(t, b.do(context.Background()))
		}
	})
}

func TestFailuresDuringABackoffDoNotLengthenIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, _ := failing(t)
		for range 5 { // into a backoff of 160 ms at least
			time.Sleep(transport.BackoffMax)
			require.Error(t, b.do(context.Background()))
		}
		until, _ := b.Backoff(b.now().Mono)
		time.Sleep(urgentGap)
		require.Error(t, b.do(context.Background()))
		after, _ := b.Backoff(b.now().Mono)
		require.Equal(t, until, after)
	})
}

func TestUrgentAttemptsAreAGapApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, _, client := failing(t)
		for range 20 {
			before := client.Dials()
			err := b.do(context.Background())
			require.ErrorIs(t, err, syscall.ECONNREFUSED, "the cause is told")
			require.True(t, transport.DidNotRun(err))
			require.Equal(t, before, client.Dials(), "and nothing was tried")
			time.Sleep(urgentGap)
			require.ErrorIs(t, b.do(context.Background()), syscall.ECONNREFUSED)
			require.Greater(t, client.Dials(), before)
		}
	})
}

func TestWhatWasHeldBackDidNotRunWhateverFailedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		b := newBed(t, dial(t, link.Option()))
		b.mustDo()
		link.DropNextReply(testredis.Named("EVALSHA"))
		broken := b.do(context.Background())
		require.Error(t, broken)
		require.False(t, transport.DidNotRun(broken), "its reply was lost")
		heldBack := b.do(context.Background())
		require.ErrorIs(t, heldBack, broken)
		require.True(t, transport.DidNotRun(heldBack))
	})
}

func TestAnAnswerEndsTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, link, _ := failing(t)
		for range 8 { // into a long backoff
			time.Sleep(transport.BackoffMax)
			require.Error(t, b.do(context.Background()))
		}
		link.Restore()
		time.Sleep(urgentGap)
		b.mustDo()
		require.False(t, b.Failing())
		_, cause := b.Backoff(b.now().Mono)
		require.NoError(t, cause)
		link.DropNextReply(testredis.Named("EVALSHA"))
		require.Error(t, b.do(context.Background()))
		require.True(t, b.Failing(), "the next failure is the first of another row")
	})
}

// The pipeline waits for a gap since the last attempt. A look does not: a lease may end before its master votes again.
func TestALookLeavesAtOnceWhenTheLinkIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, link, _ := failing(t)
		link.Restore()
		time.Sleep(urgentGap)
		begun := time.Now()
		r, _ := b.Do(context.Background(), transport.NewScript(scripts.Inspect, ""), keysOf("any"), wire.Vote{}, nil)
		require.NoError(t, r.Error())
		require.Zero(t, time.Since(begun))
	})
}

func TestOfUrgentAttemptsOneIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, link, _ := failing(t)
		link.Restore()
		link.Blackhole(testredis.Both)
		time.Sleep(urgentGap)
		begun := time.Now()
		b.tasks.Go(func() { _ = b.do(context.Background()) })
		synctest.Wait()
		require.ErrorIs(t, b.do(context.Background()), syscall.ECONNREFUSED)
		require.Zero(t, time.Since(begun))
		b.tasks.Go(func() { _ = b.do(context.Background()) })
		time.Sleep(2 * time.Second) // the dial has timed out
		synctest.Wait()
		require.Error(t, b.do(context.Background()))
		begun = time.Now()
		require.True(t, transport.DidNotRun(b.do(context.Background())))
		require.Zero(t, time.Since(begun), "the gap is counted from the failure")
	})
}

func TestARefusalIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		b := newBed(t, mini.Client(t))
		b.mustDo()
		mini.Miniredis().SetError("BUSY a script runs")
		require.ErrorContains(t, b.do(context.Background()), "BUSY")
		require.False(t, b.Failing())
	})
}

func TestTheEndOfACallersContextIsNoFailureOfTheMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		b := newBed(t, mini.Client(t))
		b.mustDo()
		mini.Freeze()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.do(ctx), context.DeadlineExceeded)
		require.False(t, b.Failing())
		mini.Thaw()
	})
}

func TestOneBrokenConnectionIsOneFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		link := mini.NewLink()
		b := newBed(t, dial(t, link.Option()))
		b.mustDo()
		mini.Freeze()
		var done outcomes
		for i := range 50 {
			b.Post(done.call(i, true))
		}
		synctest.Wait()
		link.Refuse()
		link.Cut()
		synctest.Wait()
		until, cause := b.Backoff(b.now().Mono)
		require.Error(t, cause)
		require.LessOrEqual(t, until-b.now().Mono, transport.BackoffMin)
		require.False(t, errors.Is(cause, context.Canceled))
	})
}
