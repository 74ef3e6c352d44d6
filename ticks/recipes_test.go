package ticks_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/ticks"
)

// way runs work unless another process does.
type way func(ctx context.Context, due time.Time, work func(context.Context) error) (ran bool, err error)

// cronProcess is a process that runs ticks until it is killed: then nothing leaves it any more.
type cronProcess struct {
	link   *testredis.Link
	run    way
	killed bool
}

func newCronProcess(t *testing.T, mini *testredis.Mini, byLock bool) *cronProcess {
	p := &cronProcess{link: mini.NewLink()}
	client := p.link.Client(t)
	tt := newTicks(t, client)
	p.run = func(ctx context.Context, due time.Time, work func(context.Context) error) (bool, error) {
		return tt.Do(ctx, "report", due, work, ticks.Within(time.Second))
	}
	if byLock {
		locker := expect.NoError(rwlock.New(client)).In(t)
		t.Cleanup(func() { _ = locker.Close() })
		p.run = func(ctx context.Context, _ time.Time, work func(context.Context) error) (bool, error) {
			return tick(ctx, locker, "report", work)
		}
	}
	return p
}

func (p *cronProcess) kill() {
	p.killed = true
	p.link.Refuse()
	p.link.Cut()
}

// Three processes whose clocks differ run ticks 2 s apart. Answers are lost, and processes die at work.
func TestEachTickRunsOnce(t *testing.T) {
	for name, byLock := range map[string]bool{"register": false, "lock": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mini, rng := testredis.NewMini(t), rand.New(rand.NewPCG(1, 0))
				processes := make([]*cronProcess, 3)
				for range 60 {
					time.Sleep(time.Until(time.Now().Truncate(2 * time.Second).Add(2 * time.Second)))
					due, dies, runs := time.Now(), rng.IntN(4) == 0, 0
					var all sync.WaitGroup
					for i, p := range processes {
						if p == nil || p.killed {
							p = newCronProcess(t, mini, byLock)
							processes[i] = p
						}
						if rng.IntN(5) == 0 {
							p.link.DropNextReply(testredis.Named("EVALSHA"))
						}
						late, takes := time.Duration(i*100)*time.Millisecond, time.Duration(rng.IntN(100))*time.Millisecond
						all.Go(func() {
							time.Sleep(late)
							_, err := p.run(t.Context(), due, func(ctx context.Context) error {
								if _, limited := ctx.Deadline(); limited {
									t.Error("the limit of the claim limits the work")
								}
								runs++
								time.Sleep(takes)
								if dies {
									p.kill()
								}
								return nil
							})
							if err != nil && !p.killed {
								t.Error(err)
							}
						})
					}
					all.Wait()
					require.Equal(t, 1, runs, "the tick at %v", due)
				}
			})
		})
	}
}
