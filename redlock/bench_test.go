package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

const benchGoroutines = 64

// benchSite starts five servers and a locker over them.
func benchSite(b *testing.B) ([]*testredis.Server, []rueidis.Client, *rwlock.Locker) {
	var servers []*testredis.Server
	var clients []rueidis.Client
	for range 5 {
		server := testredis.Start(b)
		client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{})
		if err != nil {
			b.Fatal(err)
		}
		servers, clients = append(servers, server), append(clients, client)
	}
	locker, err := redlock.New(clients)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = locker.Close()
		for i, c := range clients {
			servers[i].Thaw()
			c.Close()
		}
	})
	return servers, clients, locker
}

func section(b *testing.B, locker *rwlock.Locker, name string) (acquire time.Duration) {
	begun := time.Now()
	lease, err := locker.Lock(context.Background(), name)
	if err != nil {
		b.Error(err)
		return 0
	}
	acquire = time.Since(begun)
	if err := lease.Release(context.Background()); err != nil {
		b.Error(err)
	}
	return acquire
}

// BenchmarkAcquireWithOneFrozen compares the median acquisition with one of five masters frozen to that with none
// frozen, in turns of the same run.
func BenchmarkAcquireWithOneFrozen(b *testing.B) {
	servers, _, locker := benchSite(b)
	const turn = 400
	medians := [2][]time.Duration{}
	for b.Loop() {
		for frozen := range medians {
			if frozen == 1 {
				servers[2].Freeze()
			}
			var all []time.Duration
			for i := range turn {
				all = append(all, section(b, locker, fmt.Sprint("name-", i%50)))
			}
			servers[2].Thaw()
			slices.Sort(all)
			medians[frozen] = append(medians[frozen], all[len(all)/2])
		}
	}
	up, frozen := middle(medians[0]), middle(medians[1])
	b.ReportMetric(float64(up.Microseconds()), "us-p50-all-up")
	b.ReportMetric(float64(frozen.Microseconds()), "us-p50-one-frozen")
	b.ReportMetric(float64(frozen)/float64(up), "ratio")
}

func middle(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// BenchmarkThroughput compares acquire and release on distinct names by 64 goroutines with the least that a lock on all
// masters takes: SET NX with a TTL, and a script that deletes one's own value, sent to the same clients, without any
// deadline, queue, token or renewal; pair by pair in the same run.
func BenchmarkThroughput(b *testing.B) {
	_, clients, locker := benchSite(b)
	floor := bare{clients}
	section(b, locker, "warm-up")
	const each = 300 * time.Millisecond
	var ratios []float64
	var ours, theirs []float64
	for b.Loop() {
		one := rate(each, func(name string) { section(b, locker, name) })
		other := rate(each, func(name string) { floor.section(b, name) })
		ours, theirs, ratios = append(ours, one), append(theirs, other), append(ratios, one/other)
	}
	slices.Sort(ratios)
	slices.Sort(ours)
	slices.Sort(theirs)
	b.ReportMetric(ours[len(ours)/2], "locks/s")
	b.ReportMetric(theirs[len(theirs)/2], "bare/s")
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
}

// rate returns how many sections a second the goroutines complete.
func rate(d time.Duration, section func(name string)) float64 {
	var done atomic.Int64
	var work sync.WaitGroup
	begun := time.Now()
	for i := range benchGoroutines {
		work.Go(func() {
			for n := 0; time.Since(begun) < d; n++ {
				section(fmt.Sprint("name-", i, "-", n%4))
				done.Add(1)
			}
		})
	}
	work.Wait()
	return float64(done.Load()) / time.Since(begun).Seconds()
}

// bare sends the commands of an acquisition and a release to all masters and waits for a quorum of answers.
type bare struct{ clients []rueidis.Client }

var deleteOwn = rueidis.NewLuaScript(`
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`)

func (f bare) section(b *testing.B, name string) {
	key, hold := "bare:{"+name+"}", ulid.Make().String()
	f.fanOut(b, func(c rueidis.Client) error {
		err := c.Do(context.Background(), c.B().Set().Key(key).Value(hold).Nx().Px(10*time.Second).Build()).Error()
		if rueidis.IsRedisNil(err) {
			return nil // a master that has not deleted the hold before, which the quorum did not wait for
		}
		return err
	})
	f.fanOut(b, func(c rueidis.Client) error {
		return deleteOwn.Exec(context.Background(), c, []string{key}, []string{hold}).Error()
	})
}

func (f bare) fanOut(b *testing.B, send func(rueidis.Client) error) {
	answers := make(chan error, len(f.clients))
	for _, c := range f.clients {
		go func() { answers <- send(c) }()
	}
	for range len(f.clients)/2 + 1 {
		if err := <-answers; err != nil {
			b.Error(err)
		}
	}
}
