// Package peer has one interface for the lock libraries that the same faults strike.
package peer

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// Locks is a lock library as one process uses it, with its own connections.
type Locks interface {
	// Lock returns when the caller has the lock of that name, or with an error: the caller may try again. The context
	// has no deadline and outlives the hold, because some libraries end a hold with it.
	Lock(ctx context.Context, name string) (Hold, error)
	// Close ends the connections and all goroutines.
	Close()
}

// Hold is a lock that was taken. Until its release it is renewed.
type Hold interface {
	// Held reports whether the lock is still held, by the means that the library has for this question.
	Held(ctx context.Context) bool
	Release(ctx context.Context) error
	// Token returns the fencing token, 0 if the library has none.
	Token() fencing.Token
	// Value returns the random value by which the servers know the hold, "" if the library does not show it.
	Value() string
}

// Options are the arguments for opening a library.
type Options struct {
	Addrs []string // of the masters: one, or all of a quorum
	Dial  func(ctx context.Context, addr string) (net.Conn, error)
	TTL   time.Duration
}

// Library opens one lock library.
type Library struct {
	Name   string
	Module string // whose version belongs to the figures, "" if it has none
	Quorum bool   // it can lock on several independent masters
	Open   func(Options) (Locks, error)
}

// None is the name of the library that locks nothing.
const None = "no lock"

// Libraries returns all libraries.
func Libraries() []Library {
	return []Library{
		{Name: None, Open: openNone},
		{Name: "redislock", Module: "github.com/bsm/redislock", Open: openRedislock},
		{Name: "redsync", Module: "github.com/go-redsync/redsync/v4", Quorum: true, Open: openRedsync},
		{Name: "rueidislock", Module: "github.com/redis/rueidis", Open: openRueidislock},
		{Name: "fencelock", Quorum: true, Open: openFencelock},
	}
}

// Named returns the library of that name.
func Named(name string) (Library, error) {
	for _, lib := range Libraries() {
		if lib.Name == name {
			return lib, nil
		}
	}
	return Library{}, fmt.Errorf("no lock library is called %q", name)
}
