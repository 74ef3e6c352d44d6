package rwlock_test

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// No single call makes a server work for as many waiters as there may be.

// portion is how many waiters one call lets in.
const portion = 64

// moments counts what happens at each moment of fake time.
type moments struct {
	mu sync.Mutex
	n  map[time.Time]int
}

func (m *moments) count() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.n == nil {
		m.n = make(map[time.Time]int)
	}
	m.n[time.Now()]++
}

func (m *moments) at(t time.Time) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n[t]
}

func TestReleaseAdmitsManyReadersInPortions(t *testing.T) {
	inFakeTime(t, func(w *world) {
		const readers = perRefresh
		holder, p := w.Process(), w.Process()
		held := holder.Take("n", rwlock.Write)
		var told, calls moments
		p.Link.DropPushes(func(push []string) bool {
			if push[0] == "message" {
				told.count()
			}
			return false
		})
		for _, link := range []*testredis.Link{holder.Link, p.Link} {
			link.OnCommand(func(cmd []string) {
				if testkit.ScriptOf(cmd) != "" {
					calls.count()
				}
			})
		}
		var all []*pending
		for range readers {
			all = append(all, p.Acquire(w.Ctx, "n", rwlock.Read))
		}
		w.UntilWaiting("n", readers)
		holder.Link.Delay(time.Millisecond)
		p.Link.DelayDir(testredis.ToServer, time.Millisecond)
		w.Release(held)
		for _, a := range all {
			w.Release(a.Granted())
		}
		told.mu.Lock()
		defer told.mu.Unlock()
		require.Greater(w, len(told.n), 1, "in more than one portion")
		sum := 0
		for at, n := range told.n {
			require.LessOrEqual(w, n, portion*calls.at(at), "admitted by %d calls", calls.at(at))
			sum += n
		}
		require.GreaterOrEqual(w, sum, readers)
	})
}

// A server that grants what is over already, for whatever reason, is not asked again without end.
func TestGrantThatIsOverDoesNotLoopHot(t *testing.T) {
	for _, left := range []int{0, -5, 1} {
		t.Run(fmt.Sprint(left, " ms left"), func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				p := w.Process()
				p.WarmUp()
				p.Link.Delay(time.Millisecond)
				asked := 0
				w.Mini.Miniredis().Server().SetPreHook(func(c *server.Peer, name string, args ...string) bool {
					if !testkit.Running(scripts.Acquire)(append([]string{name}, args...)) {
						return false
					}
					asked++
					c.WriteLen(4)
					c.WriteInt(1)
					c.WriteBulk(strconv.FormatInt(time.Now().UnixMicro(), 10))
					c.WriteInt(left)
					c.WriteBulk(strconv.FormatInt(time.Now().UnixMicro(), 10))
					return true
				})
				const long = 2 * time.Second
				a := p.Acquire(w.Ctx, "n", rwlock.Write, rwlock.WithMaxWait(long))
				require.Error(w, a.Failed())
				require.Positive(w, asked)
				require.LessOrEqual(w, asked, 20*int(long/time.Second), "requests within %v", long)
			})
		})
	}
}

// Two lockers may share a client that has room for one subscription.
func TestCloseWithOneBlockingConnection(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	option := server.Option()
	option.BlockingPoolSize = 1
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	defer client.Close()
	var lockers []*rwlock.Locker
	for _, prefix := range []string{"a", "b"} {
		locker, err := rwlock.New(client, rwlock.WithPrefix(prefix), rwlock.WithTTL(2*time.Second))
		require.NoError(t, err)
		lockers = append(lockers, locker)
		held, err := locker.Lock(t.Context(), "n")
		require.NoError(t, err)
		over := make(chan error)
		go func() {
			next, err := locker.Lock(t.Context(), "n")
			if err == nil {
				err = next.Release(t.Context())
			}
			over <- err
		}()
		for locker.Stats().Waiting == 0 {
			time.Sleep(time.Millisecond)
		}
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, <-over)
	}
	closed := make(chan struct{})
	go func() {
		_ = lockers[1].Close()
		close(closed)
	}()
	limit := time.NewTimer(10 * time.Second)
	defer limit.Stop()
	select {
	case <-closed:
	case <-limit.C:
		t.Error("Close waits for the other locker's connection")
	}
	require.NoError(t, lockers[0].Close())
	<-closed
}
