// Package peer has the lock libraries that are measured, and floors: what the same work costs on a bare client. All are
// seen through one interface, so that one workload measures them alike.
package peer

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Peer is one client of a lock library, with connections of its own.
type Peer interface {
	// Lock waits until the name is free, and takes it for the TTL of the options. ctx bounds the waiting; a library may
	// also end the hold with it.
	Lock(ctx context.Context, name string) (Hold, error)
	// Close closes the connections. What is still held is left to expire.
	Close() error
}

// Hold is a lock that was taken.
type Hold interface {
	Release(ctx context.Context) error
}

// Reader is a Peer that has read locks too.
type Reader interface {
	RLock(ctx context.Context, name string) (Hold, error)
}

// Extender is a Hold that ends after its TTL unless its user extends it. An error says that it is lost.
type Extender interface {
	Extend(ctx context.Context) error
}

// Kept is a Hold that its library keeps alive.
type Kept interface {
	Lost() bool
}

// Fenced is a Hold with a fencing token.
type Fenced interface {
	Token() fencing.Token
}

// ErrForgotten is the error of a Release whose hold the servers did not know any more.
var ErrForgotten = errors.New("the servers have forgotten the hold")

// Options are what a peer is opened with.
type Options struct {
	Addrs      []string             // of the masters: one, or all of a quorum; none for At
	At         rueidis.ClientOption // how a Cluster is found, or the master of sentinels
	TTL        time.Duration
	ClientName string // shown by the server, where the library can set it
}

// Library opens peers of one kind.
type Library struct {
	Name   string
	Floor  bool                     // does less than a lock has to
	Quorum bool                     // can lock on several masters
	Queues bool                     // a waiter gets the lock although others ask all the time
	Keeps  bool                     // its holds outlive the TTL, by themselves or by Extend
	Key    func(name string) string // a key of the lock, which a Cluster finds its server by
	Open   func(Options) (Peer, error)
}

// TTL is that of every lock unless a workload is about TTLs: that nothing is renewed while a pair is measured.
const TTL = 10 * time.Second
