package rwlock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// The next write lease of an RWMutex has twice as many tokens as the last one used, where another process waited no
// more than it serves then, and where it lingers enough for that time, but none that would run ahead of the clock.
func TestTheBlockOfTheNextWriteLease(t *testing.T) {
	renews, lingers := rwlock.WithTTL(time.Minute), rwlock.WithLinger(time.Hour)
	for name, c := range map[string]struct {
		opt  rwlock.LockOption
		use  func(w *world, mu *rwlock.RWMutex)
		want int
	}{
		"the first":                         {renews, func(*world, *rwlock.RWMutex) {}, 1024},
		"one section":                       {renews, handOns(0), spareSections},
		"many sections":                     {renews, handOns(99), 200},
		"it has lingered":                   {rwlock.WithLinger(time.Second), lingered, 1024},
		"it has lingered for a moment":      {rwlock.WithLinger(100 * time.Microsecond), lingered, 100},
		"another waited":                    {renews, wanted(0), spareSections},
		"another waited, after many":        {renews, wanted(99), spareSections + shortSections},
		"another waited where it lingers":   {lingers, wanted(0), spareSections},
		"another waited where it has a TTL": {rwlock.WithoutRenewal(), wanted(0), 1},
	} {
		t.Run(name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.Process()
				hasWaited(p)
				mu := p.RWMutex("n", c.opt)
				c.use(w, mu)
				require.NoError(w, mu.Lock(w.Ctx))
				require.Equal(w, c.want, blockOf(w))
				require.NoError(w, mu.Unlock(w.Ctx))
			})
		})
	}
}

// handOns is the use of a write lease that is handed on so often within the process.
func handOns(n int) func(w *world, mu *rwlock.RWMutex) {
	return func(w *world, mu *rwlock.RWMutex) {
		lockAndHandOn(w, mu, n)
		require.NoError(w, mu.Unlock(w.Ctx))
	}
}

// wanted is the use of a write lease that is then handed off to another process.
func wanted(handOns int) func(w *world, mu *rwlock.RWMutex) {
	return func(w *world, mu *rwlock.RWMutex) {
		lockAndHandOn(w, mu, handOns)
		other := w.Process().Queue("n", rwlock.Write)
		require.NoError(w, mu.Unlock(w.Ctx))
		w.Release(other.Granted())
	}
}

func lockAndHandOn(w *world, mu *rwlock.RWMutex, n int) {
	require.NoError(w, mu.Lock(w.Ctx))
	for _, l := range lockCrowd(w, n, mu.Lock) {
		require.NoError(w, mu.Unlock(w.Ctx))
		require.NoError(w, l.Result())
	}
}

// lingered is the use of a write lease that lingers until it is given back.
func lingered(w *world, mu *rwlock.RWMutex) {
	handOns(0)(w, mu)
	time.Sleep(time.Minute)
}

// blockOf returns how many tokens the write hold of "n" has.
func blockOf(w *world) int {
	w.Helper()
	var hold string
	var expiry, since, first, last int
	fields := w.Command("HMGET", "fencelock:{n}", "w", "t").([]any)
	_, err := fmt.Sscan(fmt.Sprintln(fields...), &hold, &expiry, &since, &first, &last)
	require.NoError(w, err, "%q", fields)
	return last - first + 1
}
