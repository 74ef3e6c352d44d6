package redlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// A pair over a quorum takes one round trip, whichever minority is missing, and no request is sent twice.
func TestAPairOverAQuorumTakesOneRoundTrip(t *testing.T) {
	const way, n = 10 * time.Millisecond, 5
	for _, tuned := range []bool{false, true} {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprint("tuned ", tuned, ", silent ", silent), func(t *testing.T) {
				inFakeTime(t, 3, func(w *world) {
					w.Net.Tuned = tuned
					p := w.ProcessAt(way, rwlock.WithBackgroundRelease())
					p.WarmUp()
					w.Pass(time.Second)
					if silent {
						p.Links[2].Blackhole(testredis.Both)
					}
					requests := w.Requests(p)
					pair := func() {
						lease := p.Take("n", rwlock.Write)
						require.NoError(w, lease.Release(w.Ctx))
					}
					took := func() time.Duration {
						began := time.Now()
						for range n {
							pair()
							synctest.Wait() // the release has left
						}
						return time.Since(began)
					}()
					require.Equal(w, n*2*way, took)
					w.Pass(time.Second)
					count := make(map[scripts.Name]int)
					for _, r := range requests.All() {
						count[r.Script]++
					}
					require.Equal(w, map[scripts.Name]int{scripts.Acquire: n, scripts.Release: n}, count)
					p.Links[2].Restore()
					w.Pass(time.Minute)
					require.Empty(w, w.Inspect("n").Holders)
				})
			})
		}
	}
}

// Where requests overtake the releases of their own process on some masters, none is refused by them.
func TestRequestsThatOvertakeTheirReleasesOverAQuorum(t *testing.T) {
	for overtaken := 1; overtaken <= 3; overtaken++ {
		t.Run(fmt.Sprint(overtaken, " masters"), func(t *testing.T) {
			inFakeTime(t, 3, func(w *world) {
				const way = 10 * time.Millisecond
				p := w.ProcessAt(way, rwlock.WithBackgroundRelease())
				p.WarmUp()
				w.Pass(time.Second)
				release := w.Running(scripts.Release)
				for _, link := range p.Links[:overtaken] {
					link.Deny(func(cmd []string) string {
						if release(cmd) && cmd[0] == "EVALSHA" {
							return "NOSCRIPT No matching script."
						}
						return ""
					})
				}
				for i := range 3 {
					lease, err := p.TryLock(w.Ctx, "n")
					require.NoError(w, err, i)
					require.NoError(w, lease.Release(w.Ctx))
				}
				began := time.Now()
				for range 3 {
					lease, err := p.Lock(w.Soon(w.TTL), "n")
					require.NoError(w, err)
					require.NoError(w, lease.Release(w.Ctx))
				}
				require.Less(w, time.Since(began), w.TTL)
				w.Pass(time.Minute)
				require.Empty(w, w.Inspect("n").Holders)
			})
		})
	}
}

// The verdict over a release is that of a quorum: a minority that has lost the hold, or does not answer, is no failure.
func TestFailuresOfAReleaseInTheBackgroundOverAQuorum(t *testing.T) {
	for name, c := range map[string]struct {
		fail     func(w *world, p *process, master int)
		reported error // of two masters; one is no failure
	}{
		"lost":    {func(w *world, _ *process, i int) { w.Minis[i].Miniredis().Del("fencelock:{n}") }, rwlock.ErrLost},
		"silent":  {func(_ *world, p *process, i int) { p.Links[i].Blackhole(testredis.Both) }, rwlock.ErrNoQuorum},
		"is gone": {func(_ *world, p *process, i int) { p.CutOff(i) }, rwlock.ErrNoQuorum},
	} {
		for masters := 1; masters <= 2; masters++ {
			t.Run(fmt.Sprint(name, " on ", masters), func(t *testing.T) {
				inFakeTime(t, 3, func(w *world) {
					var log testkit.Log
					p := w.Process(rwlock.WithBackgroundRelease(), log.Option())
					p.WarmUp()
					w.Pass(time.Second)
					lease := p.Take("n", rwlock.Write)
					for i := range masters {
						c.fail(w, p, i)
					}
					began := time.Now()
					require.NoError(w, lease.Release(w.Ctx))
					require.Zero(w, time.Since(began))
					w.Pass(w.TTL)
					stats := p.Stats()
					require.Equal(w, masters == 2 && c.reported == rwlock.ErrLost, stats.Lost.Gone == 1)
					require.Equal(w, masters == 2 && c.reported == rwlock.ErrNoQuorum, stats.Unconfirmed == 1)
					p.Restore(0, 1, 2)
					w.Pass(time.Minute)
					w.Release(w.Process().Take("n", rwlock.Write))
				})
			})
		}
	}
}
