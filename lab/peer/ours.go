package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// Fencelock is this library as a peer.
type Fencelock struct {
	*rwlock.Locker
	clients []rueidis.Client
}

func ourKey(name string) string { return "fencelock:{" + name + "}" }

func openOurs(o Options) (Peer, error) { return Open(o) }

// Open returns this library's peer, for workloads that need more than the common interface. Options in addition to the
// TTL are given to the locker.
func Open(o Options, more ...rwlock.Option) (*Fencelock, error) {
	clients, err := dial(o)
	if err != nil {
		return nil, err
	}
	options := append([]rwlock.Option{rwlock.WithTTL(o.TTL), rwlock.WithLogger(slog.New(slog.DiscardHandler))}, more...)
	var locker *rwlock.Locker
	if len(clients) == 1 {
		locker, err = rwlock.New(clients[0], options...)
	} else {
		locker, err = redlock.New(clients, options...)
	}
	if err != nil {
		closeAll(clients)
		return nil, err
	}
	return &Fencelock{locker, clients}, nil
}

// lease is a rwlock.Lease as a Hold. It is a pointer in a struct, which an interface holds without an allocation.
type lease struct{ *rwlock.Lease }

func (l lease) Lost() bool { return l.Err() != nil }

// Release reports a lost lease as ErrForgotten.
func (l lease) Release(ctx context.Context) error {
	err := l.Lease.Release(ctx)
	if errors.Is(err, rwlock.ErrLost) {
		return fmt.Errorf("%w: %w", ErrForgotten, err)
	}
	return err
}

// Lock takes the write lock.
func (p *Fencelock) Lock(ctx context.Context, name string) (Hold, error) {
	l, err := p.Locker.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return lease{l}, nil
}

// RLock takes the read lock.
func (p *Fencelock) RLock(ctx context.Context, name string) (Hold, error) {
	l, err := p.Locker.RLock(ctx, name)
	if err != nil {
		return nil, err
	}
	return lease{l}, nil
}

// Renewals returns how many were confirmed.
func (p *Fencelock) Renewals() uint64 { return p.Stats().Renewed }

// Close releases every hold.
func (p *Fencelock) Close() error {
	err := p.Locker.Close()
	closeAll(p.clients)
	return err
}

// InBackground returns this library with releases that are not waited for.
func InBackground() Library {
	return Library{
		Name: Background, Quorum: true, Queues: true, Keeps: true, Key: ourKey,
		Open: func(o Options) (Peer, error) { return Open(o, rwlock.WithBackgroundRelease()) },
	}
}
