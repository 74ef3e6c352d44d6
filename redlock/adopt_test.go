package redlock_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// detached has one process take a lock and leave it to others.
func detached(w *world, p *process, mode rwlock.Mode, opts ...rwlock.LockOption) rwlock.Ticket {
	w.Helper()
	return expect.NoError(p.Take("x", mode).Detach(w.Ctx, opts...)).In(w)
}

var bothModes = []rwlock.Mode{rwlock.Read, rwlock.Write}

// Without a quorum there is no ticket, and the lease is held on.
func TestDetachNeedsAQuorum(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p, q := w.Process(), w.Process()
		lease := p.Take("x", rwlock.Write)
		p.CutOff(0, 1)
		w.Pass(time.Millisecond)
		require.ErrorIs(w, expect.ErrorOf(lease.Detach(w.Ctx, rwlock.WithTTL(w.TTL/2))), rwlock.ErrNoQuorum)
		require.NoError(w, lease.Err())
		p.Restore(0, 1)
		w.Pass(3 * w.TTL)
		require.NoError(w, lease.Err())
		ticket := expect.NoError(lease.Detach(w.Ctx)).In(w)

		q.Section("warm-up")
		q.CutOff(1, 2)
		w.Pass(time.Millisecond)
		require.ErrorIs(w, expect.ErrorOf(q.Adopt(w.Ctx, ticket)), rwlock.ErrNoQuorum)
		q.Restore(1, 2)
		time.Sleep(time.Second) // the locker leaves a master that has failed alone for a moment
		lease = expect.NoError(q.Adopt(w.Ctx, ticket)).In(w, "the ticket is as good as before")
		w.Release(lease)
		require.ErrorIs(w, expect.ErrorOf(q.Adopt(w.Ctx, ticket)), rwlock.ErrTicket)
	})
}

// A master that does not have the detached hold has answered, and is none of those that the adoption needs.
func TestAMasterWithoutTheDetachedHoldAdoptsNothing(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p, q := w.Process(), warm(w)
		ticket := detached(w, p, rwlock.Write)
		w.Minis[0].Miniredis().Del("fencelock:{x}")
		q.CutOff(1)
		require.Equal(w, 1, testkit.As[*rwlock.QuorumError](w, expect.ErrorOf(q.Adopt(w.Ctx, ticket))).Got)
	})
}

// Three of five masters have the detached hold, and that is enough in whatever order they answer: one that lost it and
// one that refuses do not decide before the last of the three.
func TestAnAdoptionAwaitsWhatCanDecideIt(t *testing.T) {
	inFakeTime(t, 5, func(w *world) {
		p, q := w.Process(), w.Process()
		for _, late := range []int{-1, 1, 2, 4} {
			warmUp(p, q)
			ticket := detached(w, p, rwlock.Write)
			w.Pass(10 * time.Millisecond)
			w.Minis[0].Miniredis().Del("fencelock:{x}")
			w.Minis[3].Demote()
			if late >= 0 {
				q.Links[late].DelayDir(testredis.ToClient, 20*time.Millisecond)
			}
			lease := expect.NoError(q.Adopt(w.Ctx, ticket)).In(w, "late:", late)
			w.Minis[3].Promote()
			for _, link := range q.Links {
				link.Delay(0)
			}
			w.Release(lease)
			w.Pass(2 * w.TTL)
			p.RequireFree("x")
		}
	})
}

// A hold that is not detached is not adopted, whichever master has lost it, also after a Detach that marked only some.
func TestAHoldOfAQuorumThatIsNotDetached(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p, q := w.Process(), w.Process()
		for _, mode := range bothModes {
			for lost := range 3 {
				warmUp(p, q)
				forged := detached(w, q, mode)
				w.Release(expect.NoError(q.Adopt(w.Ctx, forged)).In(w))
				lease := p.Take("x", mode)
				w.Pass(time.Millisecond)
				w.Minis[lost].Miniredis().Del("fencelock:{x}")
				p.Links[(lost+1)%3].Hold(testredis.ToClient)
				require.Error(w, expect.ErrorOf(lease.Detach(w.Soon(100*time.Millisecond))))
				seen := w.Inspect("x").Holders[0]
				forged.Owner, forged.Hold, forged.Token = seen.Owner, seen.Hold, seen.Token
				require.ErrorIs(w, expect.ErrorOf(q.Adopt(w.Ctx, forged)), rwlock.ErrTicket)
				p.Links[(lost+1)%3].Restore()
				require.NoError(w, lease.Renew(w.Ctx))

				ticket := expect.NoError(lease.Detach(w.Ctx)).In(w)
				w.Release(expect.NoError(q.Adopt(w.Ctx, ticket)).In(w, "the secret of all attempts is one"))
				w.Pass(2 * w.TTL)
			}
		}
	})
}

// A ticket is given out once a quorum has marked the hold. The others are asked until they have, too.
func TestDetachGoesOnMarking(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p, q := w.Process(), w.Process()
		for _, mode := range bothModes {
			for late := range 3 {
				warmUp(p, q)
				lease := p.Take("x", mode)
				w.Pass(time.Millisecond)
				p.CutOff(late)
				ticket := expect.NoError(lease.Detach(w.Ctx)).In(w)
				marks := func() (n int) {
					for _, m := range w.Inspect("x").Masters {
						if m.Holders[0].Detached {
							n++
						}
					}
					return n
				}
				require.Equal(w, 2, marks())
				p.Restore(late)
				w.Pass(w.TTL / 2)
				require.Equal(w, 3, marks())
				q.CutOff((late + 1) % 3)
				adopted := expect.NoError(q.Adopt(w.Ctx, ticket)).In(w)
				q.Restore((late + 1) % 3)
				w.Pass(w.TTL)
				w.Release(adopted)
				w.Pass(2 * w.TTL)
				p.RequireFree("x")
			}
		}
	})
}

// Two adopters that have one master each refuse each other, and the ticket stays good.
func TestAdoptersRefuseEachOther(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p, q, r := w.Process(), w.Process(), w.Process()
		for i := range 4 {
			mode, away := bothModes[i%2], i < 2
			warmUp(p, q, r)
			ticket := detached(w, p, mode)
			if !away {
				w.Pass(10 * time.Millisecond)
				w.Minis[2].Miniredis().Del("fencelock:{x}")
			}
			for i, one := range []*process{q, r} {
				if away {
					one.CutOff(2)
				}
				one.Links[1-i].DelayDir(testredis.ToServer, 20*time.Millisecond)
			}
			rival := w.Call(w.Ctx, func(ctx context.Context) error { return expect.ErrorOf(r.Adopt(ctx, ticket)) })
			for _, err := range []error{expect.ErrorOf(q.Adopt(w.Ctx, ticket)), rival.Result()} {
				expect.Fails(w, err, rwlock.ErrNotAcquired, "another process is adopting it")
			}
			for i, one := range []*process{q, r} {
				one.Restore(2)
				one.Links[1-i].Delay(0)
			}
			w.Pass(time.Second)
			w.Release(expect.NoError(q.Adopt(w.Ctx, ticket)).In(w))
		}
	})
}

// tickets are passed from process to process in a simulation. Some are used more than once.
type tickets struct {
	mu      sync.Mutex
	all     []rwlock.Ticket
	adopted map[string]int // by the id of the detached hold
	used    int
}

// detach leaves the lease to a process that comes for its ticket.
func (s *simulation) detach(ctx context.Context, rng *rand.Rand, lease *rwlock.Lease) {
	wait, cancel := context.WithTimeout(ctx, upTo(rng, simTTL))
	defer cancel()
	var opts []rwlock.LockOption
	if rng.IntN(3) == 0 {
		opts = append(opts, rwlock.WithTTL(100*time.Millisecond+upTo(rng, simTTL-100*time.Millisecond)))
	}
	ended := lease.Context(context.Background())
	ticket, err := lease.Detach(wait, opts...)
	if err != nil {
		return // that it was lost, or is held on, is part of the game
	}
	if ended.Err() == nil {
		s.Errorf("seed %d: a ticket, and the context of its lease lives", s.seed)
	}
	s.tickets.mu.Lock()
	defer s.tickets.mu.Unlock()
	s.tickets.all = append(s.tickets.all, ticket)
}

// adopt takes over a lease by one of the latest tickets, which others may do too.
func (s *simulation) adopt(ctx context.Context, p *simPeer, rng *rand.Rand) *rwlock.Lease {
	s.tickets.mu.Lock()
	n := len(s.tickets.all)
	if n == 0 {
		s.tickets.mu.Unlock()
		return nil
	}
	ticket := s.tickets.all[max(n-1-rng.IntN(6)/4, 0)]
	s.tickets.mu.Unlock()
	wait, cancel := context.WithTimeout(ctx, upTo(rng, simTTL))
	defer cancel()
	at := s.checker.Begin(ticket.Name)
	lease, err := p.Adopt(wait, ticket)
	if err != nil {
		if !errors.Is(err, rwlock.ErrTicket) && !errors.Is(err, rwlock.ErrLost) {
			s.accept(err)
		}
		return nil
	}
	s.checker.Acquired(at, lease)
	s.tickets.mu.Lock()
	defer s.tickets.mu.Unlock()
	s.tickets.used++
	if s.tickets.adopted == nil {
		s.tickets.adopted = make(map[string]int)
	}
	if s.tickets.adopted[ticket.Hold]++; s.tickets.adopted[ticket.Hold] > 1 {
		s.Errorf("seed %d: the ticket of token %v was adopted twice", s.seed, ticket.Token)
	}
	if lease.Token() <= ticket.Token || lease.Mode() != ticket.Mode {
		s.Errorf("seed %d: the %s lease with token %v has adopted %v", s.seed, lease.Mode(), lease.Token(), ticket)
	}
	return lease
}

var adoptionSeeds = flag.Int("redlock.adoptions", 1, "how many seeds of leases that are handed over are simulated")

// TestSimulatedAdoptions has processes hand leases over and adopt them over three masters, beside others who want the
// lock. Tickets are used by several, delays are drawn from a seed, adopters give up or are killed at any step, and
// for every second seed a master is down.
func TestSimulatedAdoptions(t *testing.T) {
	t.Parallel() // as TestSimulation
	for i := range *adoptionSeeds {
		inFakeTime(t, 3, func(w *world) {
			if i == 0 {
				w.Mini.CheckScripts()
			}
			simulateAdoptions(w, *fromSeed+int64(i))
		})
	}
}

func simulateAdoptions(w *world, seed int64) {
	s := oneLock(w, seed)
	down := int(seed % 2)
	ctx, stop := context.WithTimeout(w.Ctx, convertFor)
	defer stop()
	var work sync.WaitGroup
	for i := range 5 {
		p := s.addPeer(dice(seed, diceTickets, i), down, rwlock.WithTTL(simTTL), redlock.WithNodeTimeout(80*time.Millisecond))
		work.Go(func() {
			for ctx.Err() == nil {
				s.passOn(ctx, p)
			}
		})
	}
	work.Wait()
	s.settle()
	w.Logf("%d tickets, %d adopted, %s", len(s.tickets.all), s.tickets.used, s.checker.Summary())
	require.Positive(w, s.tickets.used, "seed %d: some draw slow links, and adopt one", seed)
}

// passOn adopts a lease or acquires one, and mostly hands it over, or the process is killed in between.
func (s *simulation) passOn(ctx context.Context, p *simPeer) {
	pause(ctx, upTo(p.rng, 10*time.Millisecond))
	if p.rng.IntN(12) == 0 {
		kill := time.AfterFunc(upTo(p.rng, 30*time.Millisecond), func() {
			for _, link := range p.Links {
				link.Cut()
			}
		})
		defer kill.Stop()
	}
	lease := s.adopt(ctx, p, p.rng)
	if lease == nil && p.rng.IntN(4) == 0 {
		wait, cancel := context.WithTimeout(ctx, upTo(p.rng, simTTL/5))
		defer cancel()
		lease = s.accepted("n", func() (*rwlock.Lease, error) { return p.acquire(wait, "n", nil) })
	}
	if lease == nil {
		return
	}
	pause(ctx, upTo(p.rng, 10*time.Millisecond))
	s.checker.Sweep()
	if p.rng.IntN(5) > 0 {
		s.detach(ctx, p.rng, lease)
	}
	_ = lease.Release(ctx)
}

// A master that had lost the detached hold is not given it back after the adoption, by a request that comes late.
func TestALateRegainOfADetachedHold(t *testing.T) {
	inFakeTime(t, 3, func(w *world) {
		p, q := w.Process(), warm(w)
		lease := p.Take("x", rwlock.Read)
		w.Pass(100 * time.Millisecond)
		p.Links[0].DelayDir(testredis.ToServer, 50*time.Millisecond)
		w.Minis[0].Miniredis().Del("fencelock:{x}")
		require.NoError(w, lease.Renew(w.Ctx), "the others have it")
		w.Pass(100 * time.Millisecond)
		require.NoError(w, lease.Renew(w.Ctx)) // the regain is on its way
		ticket := expect.NoError(lease.Detach(w.Ctx)).In(w)
		adopted := expect.NoError(q.Adopt(w.Ctx, ticket)).In(w)
		w.Pass(100 * time.Millisecond)
		for _, h := range w.Inspect("x").Masters[0].Holders {
			require.NotEqual(w, ticket.Hold, h.Hold)
		}
		w.Release(adopted)
		p.RequireFree("x")
	})
}
