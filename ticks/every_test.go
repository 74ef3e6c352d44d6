package ticks_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/ticks"
)

const period = 10 * time.Second

// A process waits by the server's clock, however wrong its own one is.
func TestEveryGoesByTheServersClock(t *testing.T) {
	for name, off := range map[string]time.Duration{
		"right": 0, "3 s ahead": 3 * time.Second, "a year ahead": 365 * 24 * time.Hour, "an hour behind": -time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt := newTicks(t, testredis.NewMini(t).Client(t))
				step := time.Duration(0)
				tt.SetClock(func() time.Time { return time.Now().Add(off + step) })
				next := time.Now().Truncate(period).Add(period)
				n := 0
				for due := range tt.Every(t.Context(), period) {
					require.True(t, next.Equal(due), "%v is not %v", due, next)
					require.WithinDuration(t, due, time.Now(), time.Millisecond)
					ran, err := tt.Do(t.Context(), "report", due, nothing)
					require.NoError(t, err)
					require.True(t, ran)
					if n++; n == 5 {
						break
					}
					next = next.Add(period)
				}

				step = time.Second // the clock is set, and the next claim shows it
				for due := range tt.Every(t.Context(), period) {
					_, err := tt.Do(t.Context(), "report", due, nothing)
					require.NoError(t, err)
					require.Zero(t, time.Since(due).Truncate(time.Millisecond))
					break
				}
			})
		})
	}
}

// Ticks that pass at work are left out, but for the newest one. The end of ctx ends the loop.
func TestEveryLeavesOutWhatHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tt := newTicks(t, testredis.NewMini(t).Client(t))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all []time.Duration
		start := time.Now().Truncate(period)
		for due := range tt.Every(ctx, period) {
			all = append(all, due.Sub(start)/period)
			switch len(all) {
			case 1:
				time.Sleep(3*period + period/2)
			case 3:
				time.AfterFunc(period+period/2, cancel)
			}
		}
		require.Equal(t, []time.Duration{1, 4, 5, 6}, all)
		require.Equal(t, start.Add(6*period+period/2), time.Now())
		for range tt.Every(ctx, period) {
			t.Error("a tick after the end")
		}
	})
}

// While no server tells the time a process goes by its own clock.
func TestEveryWithoutAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		link := mini.NewLink()
		tt := newTicks(t, link.Client(t))
		link.Blackhole(testredis.Both)
		next := time.Now().Truncate(period).Add(period)
		for due := range tt.Every(t.Context(), period) {
			require.True(t, next.Equal(due))
			require.WithinDuration(t, due, time.Now(), time.Millisecond)
			break
		}
		link.Restore()
	})
}

// The second day at 3, a calendar with gaps.
func secondDay(now time.Time) time.Time {
	at := time.Date(now.Year(), now.Month(), 2, 3, 0, 0, 0, time.UTC)
	for !at.After(now) {
		at = at.AddDate(0, 1, 0)
	}
	return at
}

func TestNearest(t *testing.T) {
	minute := func(now time.Time) time.Time { return now.Truncate(time.Minute).Add(time.Minute) }
	never := func(time.Time) time.Time { return time.Time{} }
	once := func(now time.Time) time.Time {
		if at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC); at.After(now) {
			return at
		}
		return time.Time{}
	}
	for name, tt := range map[string]struct {
		next func(time.Time) time.Time
		now  string
		want string
	}{
		"in time":         {minute, "2026-03-01T12:00:00Z", "2026-03-01T12:00:00Z"},
		"late":            {minute, "2026-03-01T12:00:29Z", "2026-03-01T12:00:00Z"},
		"early":           {minute, "2026-03-01T11:59:59.9Z", "2026-03-01T12:00:00Z"},
		"a month, late":   {secondDay, "2026-03-02T03:00:01Z", "2026-03-02T03:00:00Z"},
		"a month, early":  {secondDay, "2026-03-02T02:59:59Z", "2026-03-02T03:00:00Z"},
		"half a month":    {secondDay, "2026-03-10T00:00:00Z", "2026-03-02T03:00:00Z"},
		"the last":        {once, "2026-03-02T00:00:00Z", "2026-03-01T00:00:00Z"},
		"the only one":    {once, "2026-02-02T00:00:00Z", "2026-03-01T00:00:00Z"},
		"there are none":  {never, "2026-03-02T00:00:00Z", "0001-01-01T00:00:00Z"},
		"in the year 0 s": {minute, "1970-01-01T00:00:10Z", "1970-01-01T00:00:00Z"},
	} {
		now, err := time.Parse(time.RFC3339, tt.now)
		require.NoError(t, err)
		require.Equal(t, tt.want, ticks.Nearest(tt.next, now).Format(time.RFC3339Nano), name)
	}
}
