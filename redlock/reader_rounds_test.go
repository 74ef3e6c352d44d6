package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// Readers need an order against writers, and none among themselves: each gets in with one round of messages, however
// many read at once.

const (
	shortest = time.Millisecond                      // of a message's ways
	longest  = 2*time.Millisecond - time.Microsecond // so that two rounds never take as little as one
)

// readerCrowd is processes whose way to each master takes a time of its own, which stays the same.
func (s *set) readerCrowd(n int) []*peer {
	var all []*peer
	for i := range n {
		p := s.link(nil)
		for j, link := range p.links {
			rng := dice(7, diceDelay, i*len(s.minis)+j)
			way := shortest + upTo(rng, longest-shortest)
			link.DelayDir(testredis.Both, way)
		}
		p.start(s.t)
		p.warm(s.t)
		all = append(all, p)
	}
	return all
}

// rounds is how the acquisitions of a crowd of readers went.
type rounds struct {
	mu                 sync.Mutex
	one, more, refused int
	sample             error
}

func (r *rounds) count(took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err != nil:
		r.refused++
		r.sample = err
	case took <= 2*longest:
		r.one++
	default:
		r.more++
	}
}

func (r *rounds) String() string {
	return fmt.Sprintf("%d in one round, %d in more, %d refused (%v)", r.one, r.more, r.refused, r.sample)
}

// acquisitions is how many there are in all, shared out among the readers.
const acquisitions = 256

// read lets every peer read again and again, with a pause of up to 5 ms.
func read(t *testing.T, peers []*peer, acquire func(p *peer, ctx context.Context) (*rwlock.Lease, error)) *rounds {
	r := new(rounds)
	var work sync.WaitGroup
	for i, p := range peers {
		rng := dice(5, diceWork, i)
		work.Go(func() {
			for range acquisitions / len(peers) {
				pause(t.Context(), upTo(rng, 5*time.Millisecond))
				begun := time.Now()
				lease, err := acquire(p, soon(t, time.Second))
				r.count(time.Since(begun), err)
				if err == nil {
					pause(t.Context(), 2*time.Millisecond)
					_ = lease.Release(t.Context())
				}
			}
		})
	}
	work.Wait()
	return r
}

func TestReadersGetInWithOneRound(t *testing.T) {
	for _, readers := range []int{8, 64} {
		t.Run(fmt.Sprintf("%d readers", readers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				peers := newSet(t, 5).readerCrowd(readers)
				time.Sleep(time.Second)
				for how, acquire := range map[string]func(p *peer, ctx context.Context) (*rwlock.Lease, error){
					"RLock":    func(p *peer, ctx context.Context) (*rwlock.Lease, error) { return p.RLock(ctx, "shelf") },
					"TryRLock": func(p *peer, ctx context.Context) (*rwlock.Lease, error) { return p.TryRLock(ctx, "shelf") },
				} {
					r := read(t, peers, acquire)
					t.Log(how, r)
					require.Zero(t, r.refused, "%s, and nobody writes: %v", how, r.sample)
					require.GreaterOrEqual(t, float64(r.one)/acquisitions, 0.99, "%s: %v", how, r)
				}
			})
		})
	}
}

// Readers whose clocks differ, beside writers: the order that fencing needs is kept.
func TestReadersAreOrderedAgainstWriters(t *testing.T) {
	for seed := range int64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSet(t, 5)
				b := newChecker(t, fmt.Sprint("seed ", seed))
				var work sync.WaitGroup
				for i := range 12 {
					p := s.link(jitter(time.Millisecond, dice(seed, diceDelay, i)))
					p.start(t, clocked(skew(dice(seed, diceWorld, i)), 1))
					take := p.RLock
					if i%6 == 0 {
						take = p.Lock
					}
					work.Go(func() {
						for range 6 {
							at := b.begin("shelf")
							lease, err := take(soon(t, time.Minute), "shelf")
							if err != nil {
								t.Error(err)
								return
							}
							b.acquired(at, lease)
							b.sweep()
							if err := lease.Release(t.Context()); err != nil {
								t.Error(err)
							}
						}
					})
				}
				work.Wait()
			})
		})
	}
}
