package releases_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/releases"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/timerqueue"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// world has the releases on one master.
type world struct {
	*releases.Queues
	clock   clock.Clock
	pending atomic.Int64
	dropped int
	told    []*wire.Breaker // the heirs
}

// newWorld starts a world. With no client nothing is sent.
func newWorld(t *testing.T, client rueidis.Client) *world {
	t.Helper()
	w := &world{clock: clock.System()}
	life, end := context.WithCancel(t.Context())
	stop := make(chan struct{})
	spawn := func(task func()) bool { go task(); return true }
	m := transport.NewMaster(&transport.Config{
		Life: life, Listening: life, Clock: w.clock, BatchTimeout: 5 * time.Second, Spawn: spawn,
		OnFirstAnswer: func(*transport.Node) {}, OnMoved: func(*transport.Master) {}, OnUnread: func() {},
	}, 0, client)
	w.Queues = releases.New(releases.Config{
		Master: m, Clock: w.clock, Timers: timerqueue.New(w.clock, func(clock.Instant) {}),
		Keys:    wire.NewKeyspace("p", 1),
		Script:  func(bool) *transport.Script { return transport.NewScript(scripts.Release, "") },
		Pending: func(change int64) { w.pending.Add(change) },
		Dropped: func() { w.dropped++ },
		GoOn:    func(string, wire.More) {},
	})
	go w.Timers.Run(stop)
	go m.Run()
	t.Cleanup(func() { close(stop); end(); synctest.Wait() })
	return w
}

const key = "p:{n}"

func (w *world) release() *releases.Release {
	return &releases.Release{Key: key, Hold: "00000000000000000000000000", Until: w.clock.Now().Add(time.Hour)}
}

// in runs a test with a world over a link to a server.
func in(t *testing.T, test func(*world, *testredis.Link)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		test(newWorld(t, link.Client(t)), link)
	})
}

// A server does not answer. One release at a time is sent as a probe, and the rest follows its answer.
func TestReleasesWaitForAServer(t *testing.T) {
	in(t, func(w *world, link *testredis.Link) {
		link.Refuse()
		link.Cut()
		for range 3 {
			w.Add(w.release(), false)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 3, w.pending.Load())
		require.False(t, w.Leaving.Any(key), "no attempt waits for a server that fails")
		link.Restore()
		time.Sleep(time.Minute)
		require.Zero(t, w.pending.Load())
		require.Zero(t, w.Waiting(key))
	})
}

// A server refuses the release of one lock for now, so that one is repeated with a growing pause. A release of another
// lock, which the server takes, does not wait for the next of these probes, nor behind what waits for it.
func TestAServerThatRefusesOneReleaseGetsAnotherAtOnce(t *testing.T) {
	in(t, func(w *world, link *testredis.Link) {
		const refusedKey = "p:{refused}"
		var sent []string // keys of the releases, in their order; of the first also where the server has no script
		link.Deny(func(cmd []string) string {
			if i := slices.IndexFunc(cmd, func(s string) bool { return s == key || s == refusedKey }); i >= 0 {
				sent = append(sent, cmd[i])
				if cmd[i] == refusedKey {
					return "BUSY not now"
				}
			}
			return ""
		})
		refused := w.release()
		refused.Key = refusedKey
		w.Add(refused, false)
		time.Sleep(transport.BackoffMax) // the pause has grown
		synctest.Wait()
		require.Equal(t, 1, w.Waiting(key))
		require.Greater(t, len(sent), 1)
		sent = nil

		w.Add(w.release(), false)
		synctest.Wait() // no time goes by
		require.EqualValues(t, 1, w.pending.Load(), "only the refused one is left")
		require.Equal(t, []string{key, refusedKey}, slices.Compact(sent), "the answer is followed by what waits")
	})
}

// A release that is added to a node's queue while another node takes its place is sent, and waits for no probe.
func TestAReleaseInAReplacedQueueIsSent(t *testing.T) {
	in(t, func(w *world, link *testredis.Link) {
		link.Refuse()
		link.Cut()
		w.Add(w.release(), false)
		time.Sleep(3 * time.Second) // the node fails
		synctest.Wait()
		require.True(t, w.AddBesideRepeat(w.release()), "a release waits for a probe")
		require.EqualValues(t, 2, w.pending.Load())
		link.Restore()
		time.Sleep(time.Minute)
		require.Zero(t, w.pending.Load())
	})
}

// So many releases wait for a server, and no more. The rest has failed, and Close does not wait for it.
func TestReleasesKeptForAServer(t *testing.T) {
	in(t, func(w *world, _ *testredis.Link) {
		w.Fail(key, 1)
		const more = 3
		left := 0
		for range releases.MostKept + more {
			r := w.release()
			over := w.Add(r, true)
			w.Leaving.After(key, func() { left++ })
			over()
		}
		require.Equal(t, releases.MostKept, w.Waiting(key))
		require.EqualValues(t, releases.MostKept, w.pending.Load())
		require.Equal(t, more, w.dropped)
		require.Equal(t, releases.MostKept+more, left, "no attempt waits for them")
	})
}

// One call carries releases of a lock, but for those of which it has more to say.
func TestReleasesThatGoAlone(t *testing.T) {
	in(t, func(w *world, _ *testredis.Link) {
		for name, change := range map[string]func(*releases.Release){
			"a tombstone": func(r *releases.Release) { r.Tombstone.TTL = "1" },
			"a minimum":   func(r *releases.Release) { r.Minimum.Least = 1 },
			"a counter":   func(r *releases.Release) { r.Outrun.Grant = 1 },
			"an heir":     func(r *releases.Release) { r.Heir = w },
		} {
			w.Fail(key, 1)
			alone := w.release()
			change(alone)
			for _, r := range []*releases.Release{w.release(), w.release(), alone} {
				w.Add(r, true)
			}
			require.Len(t, w.Take(key, w.clock.Now()), 2, name)
			require.Equal(t, []*releases.Release{alone}, w.Take(key, w.clock.Now()), name)
		}
	})
}

func (w *world) Inherit(by *wire.Breaker) { w.told = append(w.told, by) }

// An heir learns that the former hold was broken, and nothing else.
func TestHeirs(t *testing.T) {
	in(t, func(w *world, _ *testredis.Link) {
		r, by := w.release(), new(wire.Breaker)
		w.Confirmed(r, wire.ReleaseReply{Broken: by})
		r.Heir = w
		w.Confirmed(r, wire.ReleaseReply{})
		w.Confirmed(r, wire.ReleaseReply{Broken: by})
		require.Equal(t, []*wire.Breaker{by}, w.told)
	})
}

// Calls that fail one after the other do not put off the probe that the first of them has set.
func TestAProbeIsNotPutOff(t *testing.T) {
	in(t, func(w *world, _ *testredis.Link) {
		w.Fail(key, 20)
		require.Equal(t, 1, w.Timers.Len())
		time.Sleep(transport.BackoffMin)
		synctest.Wait()
		require.Zero(t, w.Timers.Len())
	})
}
