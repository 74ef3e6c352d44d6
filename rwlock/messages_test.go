package rwlock_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// journal is what a locker has logged, with the moments.
type journal struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines []time.Time
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, time.Now())
	return j.text.Write(line)
}

func (j *journal) option() rwlock.Option {
	return rwlock.WithLogger(slog.New(slog.NewTextHandler(j, nil)))
}

func (j *journal) read() (text string, lines []time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String(), append([]time.Time(nil), j.lines...)
}

// A key that holds something else is the same error wherever it is met, and is never taken for masters that do not
// answer.
func TestForeignKeyIsAConflictEverywhere(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.process()
		lease := p.lock("n", rwlock.Write)
		w.command("DEL", "fencelock:{n}")
		w.command("SET", "fencelock:{n}", "mine")
		release := lease.Release(w.ctx)
		require.ErrorIs(w.t, release, rwlock.ErrConflict, "Release")
		require.NotErrorIs(w.t, release, rwlock.ErrNoQuorum, "Release")
		for how, take := range acquisitions(p.Locker) {
			ctx, cancel := context.WithTimeout(w.ctx, w.ttl)
			_, err := take(ctx, "n")
			require.ErrorIs(w.t, err, rwlock.ErrConflict, how)
			require.NotErrorIs(w.t, err, rwlock.ErrNoQuorum, how)
			cancel()
		}
		require.Equal(w.t, "mine", w.command("GET", "fencelock:{n}"))
	})
}

// said are calls that fail, by what fails them.
var said = map[string]func(w *world, p *process) error{
	"TryLock": func(w *world, p *process) error { p.die(); return errorOf(p.TryLock(w.ctx, "n")) },
	"Lock": func(w *world, p *process) error {
		p.die()
		return errorOf(p.Lock(w.ctx, "n", rwlock.WithMaxWait(time.Second)))
	},
	"no answer": func(w *world, p *process) error {
		p.link.Hold(testredis.Both)
		return errorOf(p.TryLock(w.ctx, "n", rwlock.WithMaxWait(time.Second)))
	},
	"a foreign key": func(w *world, p *process) error {
		w.command("SET", "fencelock:{n}", "mine")
		return errorOf(p.Lock(w.ctx, "n"))
	},
	"a lease cut off": func(w *world, p *process) error {
		lease := p.lock("n", rwlock.Write)
		p.link.Blackhole(testredis.Both)
		w.untilOver(lease)
		return lease.Err()
	},
	"a release without answer": func(w *world, p *process) error {
		lease := p.lock("n", rwlock.Write)
		p.link.Hold(testredis.Both)
		return lease.Release(w.ctx)
	},
	"Inspect": func(w *world, p *process) error {
		p.die()
		_, err := p.Inspect(w.ctx, "n")
		return err
	},
}

// One Redis is named by its address. It is no quorum, and has no number.
func TestOneRedisIsNoQuorumInMessages(t *testing.T) {
	for what, fail := range said {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				j := new(journal)
				p := w.process(j.option())
				p.warmUp()
				err := fail(w, p)
				require.Error(w.t, err)
				require.ErrorContains(w.t, err, "mini:6379")
				w.settle()
				logged, _ := j.read()
				for _, text := range []string{err.Error(), logged} {
					require.NotContains(w.t, text, "quorum")
					require.NotContains(w.t, text, "master 0")
					require.NotContains(w.t, text, "of the masters")
				}
			})
		})
	}
}

// A loss without a failure behind it is logged without one.
func TestLossIsLoggedWithoutNil(t *testing.T) {
	inFakeTime(t, func(w *world) {
		j := new(journal)
		p := w.process(j.option())
		bounded := p.lock("bounded", rwlock.Write, rwlock.WithMaxHold(time.Second))
		short := p.lock("short", rwlock.Write, rwlock.WithoutRenewal())
		taken := p.lock("taken", rwlock.Write)
		w.command("DEL", "fencelock:{taken}")
		for _, lease := range []*rwlock.Lease{bounded, short, taken} {
			w.untilOver(lease)
		}
		w.settle()
		logged, lines := j.read()
		require.GreaterOrEqual(w.t, len(lines), 3, logged)
		require.NotContains(w.t, logged, "nil", logged)
	})
}

// A waiter whose Redis cannot be reached says so: at once, and then at intervals that grow.
func TestUnreachableRedisIsLogged(t *testing.T) {
	for what, strike := range map[string]func(p *process){
		"refused": (*process).die,
		"silent":  func(p *process) { p.link.Blackhole(testredis.Both) },
	} {
		t.Run(what, func(t *testing.T) {
			inFakeTime(t, func(w *world) {
				j := new(journal)
				p := w.process(j.option())
				p.warmUp()
				strike(p)
				begun := time.Now()
				ctx, cancel := context.WithCancel(w.ctx)
				a := p.acquire(ctx, "n", rwlock.Write)
				w.pass(10 * time.Second)
				logged, lines := j.read()
				require.NotEmpty(w.t, lines, "nothing is logged in 10 s")
				require.Less(w.t, lines[0].Sub(begun), 5*time.Second, logged)
				require.Contains(w.t, logged, "mini:6379")
				require.Contains(w.t, logged, "n")
				w.pass(time.Hour)
				logged, lines = j.read()
				require.GreaterOrEqual(w.t, len(lines), 3, logged)
				first := strings.Join(strings.SplitN(logged, "\n", 20), "\n")
				require.Less(w.t, len(lines), 200, "lines within an hour:\n%s", first)
				cancel()
				require.ErrorIs(w.t, a.failed(), rwlock.ErrNoQuorum)
			})
		})
	}
}
