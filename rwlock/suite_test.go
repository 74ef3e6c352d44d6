package rwlock_test

import (
	"testing"

	"github.com/seed74116694/fencelock/internal/testkit"
)

// suite is what every lock must do, on every server alike.
var suite = []struct {
	name string
	test func(w *world)
}{
	{"a free lock is taken and given back", freeLock},
	{"what is held decides who gets in", compatibility},
	{"a waiting writer holds new readers back", writerHoldsReadersBack},
	{"a refused try names the holder and queues nothing", refusedTry},
	{"waiters enter in the order of their arrival", arrivalOrder},
	{"readers between two writers enter together", readersTogether},
	{"the end of ctx ends the waiting", contextEndsWaiting},
	{"a ctx that has ended sends nothing", endedContext},
	{"WithMaxWait ends the waiting", maxWait},
	{"WithMaxHold ends the lease", maxHold},
	{"WithoutRenewal ends the lease after its TTL", withoutRenewal},
	{"a lease is renewed over several TTLs", renewedForLong},
	{"Renew moves the deadline", renewedByHand},
	{"a lease that the server lost is lost", lostOnServer},
	{"any name works and none collides", anyName},
	{"a name that breaks the rules is refused", refusedName},
	{"prefixes keep lockers apart", prefixes},
	{"Do runs under the lock and gives it back", doRuns},
	{"Do gives the lock back after a panic", doPanics},
	{"Do reports the loss of its lease", doLoses},
	{"the context of a lease ends with it", leaseContext},
	{"RWMutex excludes goroutines and processes", mutexExcludes},
	{"RWMutex unlocks what it holds and nothing else", mutexUnlocks},
	{"Inspect shows holders and waiters", inspectShows},
	{"Stats counts", statsCount},
	{"Close fails waiters and releases leases", closeEndsAll},
	{"Trace is told of a lease's life", traceTells},
	{"the logger hears of losses and of nothing else", loggerHears},
}

func TestSuite(t *testing.T) {
	t.Parallel() // on real servers most of the time is waiting
	for _, p := range testkit.Places(t) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			for _, c := range suite {
				t.Run(c.name, func(t *testing.T) { p.Enter(t, observed(c.test)) })
			}
		})
	}
}
