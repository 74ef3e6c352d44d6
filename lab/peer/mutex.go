package peer

import (
	"context"
	"sync"

	"github.com/seed74116694/fencelock/rwlock"
)

// SharedHolds returns the RWMutex as a library: the goroutines of a client share its hold on the server.
func SharedHolds() Library {
	return Library{
		Name: Ours + " RWMutex", Quorum: true, Queues: true, Keeps: true,
		Open: func(o Options) (Peer, error) {
			p, err := Open(o)
			if err != nil {
				return nil, err
			}
			return &mutexes{Fencelock: p}, nil
		},
	}
}

// mutexes are the RWMutexes of one client. Each is made once and kept, as in a program that has it in a variable.
type mutexes struct {
	*Fencelock
	made sync.Map // *rwlock.RWMutex by name
}

func (p *mutexes) get(name string) *rwlock.RWMutex {
	if mu, ok := p.made.Load(name); ok {
		return mu.(*rwlock.RWMutex)
	}
	mu, _ := p.made.LoadOrStore(name, p.RWMutex(name))
	return mu.(*rwlock.RWMutex)
}

// Lock takes the lock for writing.
func (p *mutexes) Lock(ctx context.Context, name string) (Hold, error) {
	mu := p.get(name)
	if err := mu.Lock(ctx); err != nil {
		return nil, err
	}
	return writing{mu}, nil
}

// RLock takes the lock for reading.
func (p *mutexes) RLock(ctx context.Context, name string) (Hold, error) {
	mu := p.get(name)
	if err := mu.RLock(ctx); err != nil {
		return nil, err
	}
	return reading{mu}, nil
}

type writing struct{ mu *rwlock.RWMutex }

func (h writing) Release(ctx context.Context) error { return h.mu.Unlock(ctx) }

type reading struct{ mu *rwlock.RWMutex }

func (h reading) Release(ctx context.Context) error { return h.mu.RUnlock(ctx) }
