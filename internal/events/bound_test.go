package events_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/events"
)

func TestEventsBeyondTheBoundAreCountedAndNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var j journal
		release := blocked(t, &r)
		for i := range events.Capacity {
			require.True(t, r.Offer(j.entry(i)))
		}
		require.Zero(t, r.Dropped())
		for range 10 {
			require.False(t, r.Offer(func() { t.Error("it was refused") }))
		}
		require.EqualValues(t, 10, r.Dropped())
		release()
		r.Close(limit)
		require.Equal(t, sequence(0, events.Capacity), j.all())
		require.True(t, r.Offer(j.entry(events.Capacity)), "there is room again")
		r.Close(limit)
		require.EqualValues(t, 10, r.Dropped())
	})
}

func TestFinalEventsAreTakenBeyondTheBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r events.Relay
		var j journal
		release := blocked(t, &r)
		for i := range events.Capacity {
			r.Offer(j.entry(i))
		}
		for i := range 100 {
			r.Final(j.entry(events.Capacity + i))
		}
		require.Zero(t, r.Dropped())
		require.False(t, r.Offer(func() {}))
		release()
		r.Close(limit)
		require.Equal(t, sequence(0, events.Capacity+100), j.all())
	})
}
