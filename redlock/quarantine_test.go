package redlock_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// A master that may have lost data is found by whatever could vote on it, whoever came to it first.

const quarantineTTL = 5 * time.Second

// firstToCome are others that use the master that has just come back, before anybody of its set does.
var firstToCome = map[string]func(w *world){
	"nobody": func(*world) {},
	"a locker of that server alone, which is refused": func(w *world) {
		require.ErrorIs(w, useAlone(w, rueidis.ClientOption{}), rwlock.ErrOption)
	},
	"a locker of that server alone, another database": func(w *world) {
		require.NoError(w, useAlone(w, rueidis.ClientOption{SelectDB: 3}))
	},
	"a locker of that server alone, another prefix": func(w *world) {
		require.NoError(w, useAlone(w, rueidis.ClientOption{}, rwlock.WithPrefix("other")))
	},
	"another service on the same masters": func(w *world) {
		const ttl = 200 * time.Millisecond
		var all sync.WaitGroup
		for range 2 {
			p := w.Process(rwlock.WithPrefix("other"), rwlock.WithTTL(ttl), redlock.WithNodeTimeout(ttl/2))
			all.Go(func() {
				for begun := time.Now(); time.Since(begun) < 5*ttl; {
					if lease, err := p.Lock(w.Soon(time.Second), "daily"); err == nil {
						_ = lease.Renew(w.Ctx)
						_ = lease.Release(w.Ctx)
					}
				}
			})
		}
		all.Wait()
	},
	"another process of the set": func(w *world) { w.Process().Use("daily") },
}

func useAlone(w *world, base rueidis.ClientOption, opts ...rwlock.Option) error {
	w.Helper()
	client := expect.NoError(rwlock.Dial(w.Servers[1].Addr(), base)).In(w)
	defer client.Close()
	all := append(append([]rwlock.Option{testredis.Silent()}, opts...), testredis.Patience())
	locker := expect.NoError(rwlock.New(client, all...)).In(w)
	defer locker.Close()
	lease, err := locker.Lock(w.Ctx, "daily")
	if err != nil {
		return err
	}
	return errors.Join(lease.Renew(w.Ctx), lease.Release(w.Ctx))
}

// A master comes back from the save of before a lease; its scripts are known to it again before the set asks for them.
func TestRestartFromAnOldSaveIsFound(t *testing.T) {
	t.Parallel() // servers start and are waited for
	for who, come := range firstToCome {
		if !testredis.All() && strings.Contains(who, "another") {
			continue
		}
		t.Run(who+" comes first", func(t *testing.T) {
			t.Parallel()
			w := testkit.Start(t, 3)
			w.TTL = quarantineTTL
			holder, other := w.Process(), w.Process()
			holder.Use("warm-up")
			other.Use("warm-up", "x")
			w.On(w.Servers[1], "SAVE")
			holder.CutOff(2)
			lease := expect.NoError(holder.Lock(w.Ctx, "x", rwlock.WithoutRenewal())).In(t)
			w.Servers[1].Restart()
			come(w)
			other.CutOff(0)
			nobodyBeside(w, lease, other)

			other.Restore(0)
			next := expect.NoError(other.Lock(w.Soon(6*quarantineTTL), "x")).In(t)
			require.Greater(t, next.Token(), lease.Token())
			require.NoError(t, next.Release(w.Ctx))
		})
	}
}

// A master abstains for as long as the quarantine, whatever its clock said when that began.
func TestAbstentionEndsThoughTheClockWasAhead(t *testing.T) {
	const ttl = 3 * time.Second
	for _, ahead := range []time.Duration{time.Minute, time.Hour, 100 * 24 * time.Hour} {
		runInFakeTime(t, fmt.Sprint("booted ", ahead, " ahead"), 3, func(w *world) {
			p := warm(w, rwlock.WithTTL(ttl))
			w.Minis[1].Crash()
			w.Minis[1].Skew(ahead)
			w.Minis[1].Recover()
			for until := time.Now().Add(ttl / 2); time.Now().Before(until); time.Sleep(100 * time.Millisecond) {
				p.Section("warm-up")
			}
			w.Minis[1].Skew(0)
			time.Sleep(2 * ttl)
			w.Minis[2].Stop()
			w.Release(expect.NoError(p.Lock(w.Soon(2*ttl), "x")).In(w, "its quarantine is long over:", ttl))
		})
	}
}

// Masters were set up by a user who may not run INFO. One who may is no reason for all of them to abstain.
func TestUserWithInfoMakesNobodyAbstain(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	w := testkit.Start(t, 3)
	for _, server := range w.Servers {
		w.On(server, "ACL", "SETUSER", "app", "on", ">secret", "~*", "&*", "+@all", "-info")
	}
	user := func(o *rueidis.ClientOption) { o.Username, o.Password = "app", "secret" }
	app := w.ProcessOver(testkit.Net{Change: user}, rwlock.WithTTL(ttl))
	lease := app.Acquire(w.Soon(ttl), "x", rwlock.Write).Granted()
	able := w.Process(rwlock.WithTTL(ttl))
	for i := range 3 {
		begun := time.Now()
		other, err := able.Lock(w.Soon(ttl*2/3), fmt.Sprint("unrelated ", i))
		require.NoError(t, err, "after %v", time.Since(begun))
		w.Release(other)
	}
	require.NoError(t, lease.Renew(w.Ctx))
	w.Release(lease)
}

// Answers that come after the node timeout are heard: a link that is always that slow gets its locks and keeps them.
func TestLinkSlowerThanTheNodeTimeoutWorks(t *testing.T) {
	for _, oneWay := range []time.Duration{20, 26, 30, 45, 100} {
		runInFakeTime(t, fmt.Sprintf("round trip of %d ms", 2*oneWay), 3, func(w *world) {
			p := w.ProcessAt(oneWay*time.Millisecond, rwlock.WithTTL(time.Second))
			for _, name := range []string{"x", "y"} {
				begun := time.Now()
				lease := p.Acquire(w.Soon(10*time.Second), name, rwlock.Write).Granted()
				require.Less(w, time.Since(begun), 5*time.Second)
				time.Sleep(5 * time.Second)
				require.NoError(w, lease.Err(), "renewed as ever")
				w.Release(lease)
			}
		})
	}
}

// A single attempt counts a master as silent after the node timeout. docs/operate.md says when to set it.
func TestNodeTimeoutAcrossRegions(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		const rtt = 150 * time.Millisecond
		w.TTL = 2 * time.Second
		w.Net = testkit.Net{Way: rtt / 2, Tuned: true}
		for _, opts := range [][]rwlock.Option{nil, {redlock.WithNodeTimeout(3 * rtt)}} {
			p := w.Process(opts...)
			p.Section("warm up")
			w.Pass(w.TTL)
			err := p.TryOnce("n")
			require.Equal(w, opts == nil, errors.Is(err, rwlock.ErrNoQuorum), err)
			w.Pass(w.TTL)
		}
	})
}

var waiterRecord = regexp.MustCompile(`^q \d+ \d+ \d+ w (\d+) \S+ [bp](\S+) `)

// A master that is not in order has no vote, so its hand-off is no grant either.
func TestAHandOffOfAMasterThatIsNotInOrderIsNoGrant(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		holder, p := warm(w), warm(w)
		holder.CutOff(2)
		lease := holder.Take("x", rwlock.Write)
		waiting := p.Acquire(w.Ctx, "x", rwlock.Write) // granted by the last master, queued on the others
		w.Pass(20 * time.Millisecond)
		first := w.Minis[0].Miniredis()
		first.HSet("fencelock:master", "set", "01JANOTHERSET", "seats", "a b c", "id", "01JANOTHERSET::0")
		w.Pass(w.Refresh() + 200*time.Millisecond) // the waiter's refresh meets the other marker, which is read then

		token := w.Minis[2].Miniredis().HGet("fencelock:{x}", "w")[:16] // nothing has to be raised
		handOff, channel := "", ""
		keys := expect.NoError(first.HKeys("fencelock:{x}")).In(w)
		for _, id := range keys {
			if record := waiterRecord.FindStringSubmatch(first.HGet("fencelock:{x}", id)); record != nil {
				now := time.Now().UnixMicro()
				handOff, channel = fmt.Sprint(id, " ", token, " ", now, " ", record[1], " process"), record[2]
			}
		}
		require.Equal(w, 1, first.Publish(channel, handOff))
		w.Pass(20 * time.Millisecond)
		require.True(w, waiting.IsWaiting())
		require.NoError(w, lease.Err())
		holder.Restore(2)
		w.Release(lease)
		w.Release(waiting.Granted())
	})
}
