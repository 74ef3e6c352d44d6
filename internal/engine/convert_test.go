package engine_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// A conversion is done once the new hold is granted. The release of the old one is waited for until ctx ends, and at
// most for the release timeout; it is unconfirmed until it comes through.
func TestAConversionDoesNotOutlastItsContext(t *testing.T) {
	const ttl, soon, releaseTimeout = 10 * time.Second, 50 * time.Millisecond, 2 * time.Second
	for _, masters := range []int{1, 3} {
		for limit, want := range map[time.Duration]time.Duration{soon: soon, time.Hour: releaseTimeout} {
			inBubble(t, fmt.Sprint(masters, " masters, ctx of ", limit), func(t *testing.T) {
				e, thaw := releasesFreeze(t, masters, ttl)
				lock := settings.Default().Lock
				lock.TTL = ttl
				r := engine.Request{Name: "n", Mode: fencing.Read, Entry: engine.Wait, Terms: lock.Prepare()}
				l := acquired(t, e, r)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				began := time.Now()
				require.NoError(t, l.Convert(ctx, fencing.Write, engine.Upgrade, nil))
				require.Equal(t, want, time.Since(began))
				require.Equal(t, fencing.Write, l.Mode())
				require.Positive(t, e.Registered().Releases)

				thaw()
				time.Sleep(ttl)
				require.NoError(t, l.Err())
				require.Equal(t, engine.Registered{Leases: 1, Timers: 1}, e.Registered())
				require.NoError(t, l.Release(t.Context()))
				require.Zero(t, e.Registered())
			})
		}
	}
}

// The new hold of a conversion may end between its grant and the exchange: it was handed over, for a shorter time than
// the old one has left, and the process stood still. Then the lease is what it was, also where no timer has run since.
func TestANewHoldThatEndsBeforeItIsTaken(t *testing.T) {
	for name, stopped := range map[string]bool{"its timer runs": false, "no timer runs": true} {
		inBubble(t, name, func(t *testing.T) { convertStandingStill(t, stopped) })
	}
}

func convertStandingStill(t *testing.T, stopped bool) {
	const ttl, pause = 10 * time.Second, 5 * time.Second
	mini := testredis.NewMini(t)
	var watched atomic.Pointer[engine.Engine]
	var stoodStill atomic.Bool
	began := time.Now()
	s := settings.Default()
	s.Clients, s.Lock.TTL = []rueidis.Client{mini.Client(t)}, ttl
	s.Clock = func() (time.Duration, time.Time) {
		now := time.Now()
		if e := watched.Load(); e != nil && e.Held() == 2 { // the first look after the grant
			stoodStill.Store(true)
		}
		if stoodStill.Load() {
			now = now.Add(pause)
		}
		return now.Sub(began), now
	}
	require.Nil(t, s.Check())
	e := engine.New(s.Engine())
	defer e.Close()
	if stopped {
		defer stopTimers(t, e)()
	}
	watched.Store(e)
	other := newEngine(t, ttl, mini.Client(t))
	var l, beside engine.Lease
	reading := engine.Request{Name: "n", Mode: fencing.Read, Entry: engine.Wait, Terms: s.Lock.Prepare()}
	require.NoError(t, e.Acquire(t.Context(), &l, reading))
	require.NoError(t, other.Acquire(t.Context(), &beside, reading))
	converted := make(chan error, 1)
	go func() { converted <- l.Convert(t.Context(), fencing.Write, engine.Upgrade, nil) }()
	synctest.Wait()
	require.NoError(t, beside.Release(t.Context()))
	var failure *lockerr.Error
	require.ErrorAs(t, <-converted, &failure)
	require.EqualError(t, failure.Err, "the write hold was granted and lost before the conversion ended: paused")
	require.True(t, stoodStill.Load())
	require.NoError(t, l.Err())
	require.Equal(t, fencing.Read, l.Mode())
	require.NoError(t, l.Renew(t.Context()))
	require.NoError(t, l.Release(t.Context()))
	require.Zero(t, e.Registered().Leases)
}

// The process may stand still at any look at its clocks. Then the call succeeds and reports no loss, or it is too late
// and returns the loss.
func TestStandingStillBetweenTwoReadings(t *testing.T) {
	const last, ttl = 30, 10 * time.Second // readings of a call
	for _, c := range []struct {
		name  string
		pause time.Duration // longer than the lease has left when it is called, or than that renewal
		call  func(t *testing.T, l *engine.Lease) error
	}{
		{"conversion", ttl/2 + time.Second, func(t *testing.T, l *engine.Lease) error {
			err := l.Convert(t.Context(), fencing.Read, engine.Try, nil)
			if err == nil {
				require.NoError(t, l.Err())
			}
			return err
		}},
		{"detach", ttl + time.Second, func(t *testing.T, l *engine.Lease) error {
			_, err := l.Detach(t.Context(), 0)
			require.Error(t, l.Err())
			return err
		}},
	} {
		succeeded := 0
		for at := 1; at <= last; at++ {
			inBubble(t, fmt.Sprint(c.name, " at reading ", at), func(t *testing.T) {
				var ended *lockerr.Loss
				stats, err := standingStill(t, ttl, at, c.pause, c.call)
				lost := uint64(0)
				for _, n := range stats.Lost {
					lost += n
				}
				if err == nil {
					require.Zero(t, lost)
					succeeded++
				} else {
					require.ErrorAs(t, err, &ended)
					require.EqualValues(t, 1, lost)
				}
			})
		}
		require.True(t, 0 < succeeded && succeeded < last, c.name)
	}
}

// standingStill makes a call for a lease with half of its TTL left. The process pauses at one of the readings.
func standingStill(
	t *testing.T, ttl time.Duration, at int, pause time.Duration, call func(*testing.T, *engine.Lease) error,
) (engine.Stats, error) {
	s := settings.Default()
	s.Clients, s.Lock.TTL, s.Lock.Renew = []rueidis.Client{testredis.NewMini(t).Client(t)}, ttl, false
	var left, ahead atomic.Int64
	began := time.Now()
	s.Clock = func() (time.Duration, time.Time) {
		if left.Add(-1) == 0 {
			ahead.Store(int64(pause))
		}
		now := time.Now().Add(time.Duration(ahead.Load()))
		return now.Sub(began), now
	}
	e := engine.New(s.Engine())
	defer e.Close()
	l := acquired(t, e, engine.Request{Name: "n", Mode: fencing.Write, Entry: engine.Try, Terms: s.Lock.Prepare()})
	time.Sleep(ttl / 2)
	left.Store(int64(at))
	err := call(t, l)
	return e.Stats(), err
}

// MaxHold limits the lease, from its first grant. A second hold that is granted meanwhile neither moves the limit nor
// is lost at it: the lease is lost once, and its second hold is released, also by the exchange that comes too late.
func TestMaxHoldEndsALeaseThatConverts(t *testing.T) {
	for name, alone := range map[string]func(context.Context) error{
		"others stay": context.Cause, "others just left": func(context.Context) error { return nil },
	} {
		t.Run(name, func(t *testing.T) { convertUntilMaxHold(t, alone) })
	}
}

func convertUntilMaxHold(t *testing.T, alone func(context.Context) error) {
	const limit = time.Second
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, settings.Default().Lock.TTL, testredis.NewMini(t).Client(t))
		r := writing(limit)
		r.Mode = fencing.Read
		l := acquired(t, e, r)
		began := time.Now()
		time.Sleep(limit / 2)
		err := l.Convert(t.Context(), fencing.Write, engine.Upgrade, func(ctx context.Context) error {
			require.Equal(t, 2, e.Held())
			<-ctx.Done()
			return alone(ctx)
		})
		var loss *lockerr.Loss
		require.ErrorAs(t, err, &loss)
		require.Equal(t, lockerr.MaxHold, loss.Reason)
		require.Equal(t, limit, time.Since(began))
		synctest.Wait()
		require.Equal(t, uint64(1), e.Stats().Lost[lockerr.MaxHold])
		require.Zero(t, e.Registered())
	})
}

// stopTimers keeps the goroutine of an engine's timers busy until resume is called: with the end of a lease.
func stopTimers(t *testing.T, e *engine.Engine) (resume func()) {
	r := writing(time.Second)
	r.Name = "busy"
	l := acquired(t, e, r)
	resumed := make(chan struct{})
	l.OnEnd(func(error) { <-resumed })
	time.Sleep(time.Second)
	synctest.Wait()
	require.Error(t, l.Err())
	return func() { close(resumed) }
}

// releasesFreeze returns an engine whose masters run no release until thaw is called.
func releasesFreeze(t *testing.T, masters int, ttl time.Duration) (e *engine.Engine, thaw func()) {
	thawed := make(chan struct{})
	var clients []rueidis.Client
	for i := range masters {
		mini := testredis.NewMini(t)
		mini.SetAddr(fmt.Sprintf("mini-%d:6379", i))
		link := mini.NewLink()
		link.OnCommand(func(cmd []string) {
			if isRelease(cmd) {
				<-thawed
			}
		})
		clients = append(clients, link.Client(t))
	}
	return newEngine(t, ttl, clients...), func() { close(thawed) }
}

// isRelease reports whether a command releases a hold and leaves no tombstone. Over several masters the digest of a
// script depends on their set, so it is known by its arguments: only the hold, and the vote where there is one.
func isRelease(cmd []string) bool {
	if !testredis.Named("EVALSHA", "EVAL")(cmd) {
		return false
	}
	keys, err := strconv.Atoi(cmd[2])
	if err != nil {
		return false
	}
	args := cmd[3+keys:]
	return len(args) > 0 && len(args[0]) == 26 && (len(args) == 1 || len(args) == 2 && strings.Contains(args[1], " "))
}
