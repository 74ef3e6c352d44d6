package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
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

// BenchmarkThroughput compares acquire and release on distinct names by 64 goroutines with the same scripts sent to
// the same clients by hand, without any deadline, queue, token or renewal; pair by pair in the same run.
func BenchmarkThroughput(b *testing.B) {
	_, clients, locker := benchSite(b)
	bare := newBare(b, clients)
	section(b, locker, "warm-up")
	const each = 300 * time.Millisecond
	var ratios []float64
	var ours, theirs []float64
	for b.Loop() {
		one := rate(each, func(name string) { section(b, locker, name) })
		other := rate(each, func(name string) { bare.section(b, name) })
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

// bare sends the scripts of an acquisition and a release to all masters and waits for a quorum of answers.
type bare struct {
	clients          []rueidis.Client
	acquire, release string // digests
}

func newBare(b *testing.B, clients []rueidis.Client) *bare {
	load := func(name scripts.Name) (digest string) {
		for _, c := range clients {
			var err error
			digest, err = c.Do(b.Context(), c.B().ScriptLoad().Script(scripts.Source(name)).Build()).ToString()
			if err != nil {
				b.Fatal(err)
			}
		}
		return digest
	}
	return &bare{clients: clients, acquire: load(scripts.Acquire), release: load(scripts.Release)}
}

func (f *bare) section(b *testing.B, name string) {
	base := "bare:{" + name + "}"
	keys := []string{base, base + ":h", base + ":q", base + ":w", base + ":t", "fencelock:master"}
	hold := ulid.Make().String()
	ballot := strconv.FormatInt(time.Now().UnixMicro(), 10) + " 10000 0"
	f.fanOut(b, f.acquire, keys, ballot, "86400000", hold, hold, "w", hold, "10000", "3000", "h", "bare")
	f.fanOut(b, f.release, keys, ballot, "86400000", hold, "0", "0")
}

func (f *bare) fanOut(b *testing.B, digest string, keys []string, args ...string) {
	answers := make(chan error, len(f.clients))
	for _, c := range f.clients {
		go func() {
			command := c.B().Evalsha().Sha1(digest).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()
			answers <- c.Do(context.Background(), command).Error()
		}()
	}
	for range len(f.clients)/2 + 1 {
		if err := <-answers; err != nil {
			b.Error(err)
		}
	}
}
