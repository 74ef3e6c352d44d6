package rwlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testkit"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A key that holds something else is the same error wherever it is met, and is never taken for masters that do not
// answer.
func TestForeignKeyIsAConflictEverywhere(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
		w.Command("DEL", "fencelock:{n}")
		w.Command("SET", "fencelock:{n}", "mine")
		release := lease.Release(w.Ctx)
		require.ErrorIs(w, release, rwlock.ErrConflict, "Release")
		require.NotErrorIs(w, release, rwlock.ErrNoQuorum, "Release")
		for how, take := range acquisitions(p.Locker) {
			ctx, cancel := context.WithTimeout(w.Ctx, w.TTL)
			_, err := take(ctx, "n")
			require.ErrorIs(w, err, rwlock.ErrConflict, how)
			require.NotErrorIs(w, err, rwlock.ErrNoQuorum, how)
			cancel()
		}
		require.Equal(w, "mine", w.Command("GET", "fencelock:{n}"))
	})
}

// said are calls that fail, by what fails them.
var said = map[string]func(w *world, p *process) error{
	"TryLock": func(w *world, p *process) error { p.Die(); return errorOf(p.TryLock(w.Ctx, "n")) },
	"Lock": func(w *world, p *process) error {
		p.Die()
		return errorOf(p.Lock(w.Ctx, "n", rwlock.WithMaxWait(time.Second)))
	},
	"no answer": func(w *world, p *process) error {
		p.Link.Hold(testredis.Both)
		return errorOf(p.TryLock(w.Ctx, "n", rwlock.WithMaxWait(time.Second)))
	},
	"a foreign key": func(w *world, p *process) error {
		w.Command("SET", "fencelock:{n}", "mine")
		return errorOf(p.Lock(w.Ctx, "n"))
	},
	"a lease cut off": func(w *world, p *process) error {
		lease := p.Take("n", rwlock.Write)
		p.Link.Blackhole(testredis.Both)
		w.UntilOver(lease)
		return lease.Err()
	},
	"a release without answer": func(w *world, p *process) error {
		lease := p.Take("n", rwlock.Write)
		p.Link.Hold(testredis.Both)
		return lease.Release(w.Ctx)
	},
	"Inspect": func(w *world, p *process) error {
		p.Die()
		_, err := p.Inspect(w.Ctx, "n")
		return err
	},
}

// One Redis is named by its address. It is no quorum, and has no number.
func TestOneRedisIsNoQuorumInMessages(t *testing.T) {
	for what, fail := range said {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				j := new(testkit.Log)
				p := w.Process(j.Option())
				p.WarmUp()
				err := fail(w, p)
				require.Error(w, err)
				require.ErrorContains(w, err, "mini:6379")
				w.Settle()
				logged := j.String()
				for _, text := range []string{err.Error(), logged} {
					require.NotContains(w, text, "quorum")
					require.NotContains(w, text, "master 0")
					require.NotContains(w, text, "of the masters")
				}
			})
		})
	}
}

// A loss without a failure behind it is logged without one.
func TestLossIsLoggedWithoutNil(t *testing.T) {
	inFakeTime(t, func(w *world) {
		j := new(testkit.Log)
		p := w.Process(j.Option())
		bounded := p.Take("bounded", rwlock.Write, rwlock.WithMaxHold(time.Second))
		short := p.Take("short", rwlock.Write, rwlock.WithoutRenewal())
		taken := p.Take("taken", rwlock.Write)
		w.Command("DEL", "fencelock:{taken}")
		for _, lease := range []*rwlock.Lease{bounded, short, taken} {
			w.UntilOver(lease)
		}
		w.Settle()
		logged, lines := j.String(), j.Records("")
		require.GreaterOrEqual(w, len(lines), 3, logged)
		require.NotContains(w, logged, "nil", logged)
	})
}

// A waiter whose Redis cannot be reached says so: at once, and then at intervals that grow.
func TestUnreachableRedisIsLogged(t *testing.T) {
	for what, strike := range map[string]func(p *process){
		"refused": (*process).Die,
		"silent":  func(p *process) { p.Link.Blackhole(testredis.Both) },
	} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				j := new(testkit.Log)
				p := w.Process(j.Option())
				p.WarmUp()
				strike(p)
				begun := time.Now()
				ctx, cancel := context.WithCancel(w.Ctx)
				a := p.Acquire(ctx, "n", rwlock.Write)
				w.Pass(10 * time.Second)
				logged, lines := j.String(), j.Records("")
				require.NotEmpty(w, lines, "nothing is logged in 10 s")
				require.Less(w, lines[0].Time.Sub(begun), 5*time.Second, logged)
				require.Contains(w, logged, "mini:6379")
				require.Contains(w, logged, "n")
				w.Pass(time.Hour)
				logged, lines = j.String(), j.Records("")
				require.GreaterOrEqual(w, len(lines), 3, logged)
				first := strings.Join(strings.SplitN(logged, "\n", 20), "\n")
				require.Less(w, len(lines), 200, "lines within an hour:\n%s", first)
				cancel()
				require.ErrorIs(w, a.Failed(), rwlock.ErrNoQuorum)
			})
		})
	}
}
