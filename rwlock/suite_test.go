package rwlock_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
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
	{"an acquisition follows the release in the background before it", followsInTheBackground},
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
	{"several locks are taken together", severalTogether},
	{"several readers share several locks", severalReaders},
	{"several locks have modes of their own", testkit.MixedModes},
	{"Inspect shows holders and waiters", inspectShows},
	{"List shows what is held and waited for", listShows},
	{"Break ends a lease", breakEndsALease},
	{"Break ends a wait", breakEndsAWait},
	{"BreakNow frees a lock at once", breakNowFreesAtOnce},
	{"Stats counts", statsCount},
	{"Close fails waiters and releases leases", closeEndsAll},
	{"Trace is told of a lease's life", traceTells},
	{"the logger hears of losses and of nothing else", loggerHears},
}

func TestSuite(t *testing.T) {
	t.Parallel() // on real servers most of the time is waiting
	for _, p := range testkit.Places(t) {
		t.Run(p.Name, func(t *testing.T) {
			for _, c := range suite {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					p.Enter(t, observed(c.test))
				})
			}
		})
	}
}

// The same suite, with every script run twice for each request of every process: nobody can tell the difference.
func TestSuiteWithEveryRequestTwice(t *testing.T) {
	testredis.NeedAll(t, "the model of the scripts shows it of each of them")
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				w.Twice = true
				c.test(w)
			})
		})
	}
}

// deployments are where the suite runs beside fake time and single servers, on Redis and on Valkey.
var deployments = []struct {
	name  string
	start func(t *testing.T, binary string) testredis.Deployment
	opts  []rwlock.Option
}{
	{"Sentinel", startSentinel, nil},
	{"Cluster", startCluster, nil},
	{"TLS and the documented user", startLockedDown, nil},
	{"Sentinel, with a replica", startSentinel, []rwlock.Option{withAReplica}},
	{"Cluster, with a replica", startCluster, []rwlock.Option{withAReplica}},
}

var withAReplica = rwlock.WithReplicas(1, unhurried(1200*time.Millisecond)) // 3 s, the most, under the race detector

func startSentinel(t *testing.T, binary string) testredis.Deployment {
	return testredis.StartSentinel(t, binary)
}

func startCluster(t *testing.T, binary string) testredis.Deployment {
	return testredis.StartCluster(t, binary, 1)
}

func TestSuiteInEveryDeployment(t *testing.T) {
	testredis.NeedAll(t, "what differs between deployments has tests of its own")
	t.Parallel() // most of the time is waiting
	for kind, find := range map[string]func(testing.TB) string{"Redis": redisBinary, "Valkey": testredis.Valkey} {
		for _, d := range deployments {
			t.Run(kind+", "+d.name, func(t *testing.T) {
				t.Parallel()
				deployment := d.start(t, find(t))
				for _, c := range suite {
					t.Run(c.name, func(t *testing.T) { onGroup(t, deployment, c.test, d.opts...) })
				}
			})
		}
	}
}

// lockedDown is a server over TLS with the user of SECURITY.md.
type lockedDown struct{ *testredis.TLS }

func startLockedDown(t *testing.T, binary string) testredis.Deployment {
	s := lockedDown{testredis.StartTLS(t, binary)}
	for _, line := range [][]string{
		aclLine(t, aclOne), {"ACL", "SETUSER", "locks", "~team:blue:*", "&team:blue:c:*"}, // the suite's other prefix
		{"ACL", "SETUSER", "locks", "+scan"}, // List is for operators
	} {
		require.NoError(t, errorOf(s.Command(line...)))
	}
	t.Cleanup(func() {
		refused := got(s.Command("ACL", "LOG")).orFail(t)
		require.Empty(t, refused, "refused commands")
	})
	return s
}

func (s lockedDown) Option() rueidis.ClientOption {
	option := s.TLS.Option()
	option.Username, option.Password = "locks", "secret"
	return option
}
