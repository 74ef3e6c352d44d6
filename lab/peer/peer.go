// Package peer has the lock libraries that are measured, and floors: the cost of the same work on a bare client. All
// have one interface, so that one workload measures them alike.
package peer

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Peer is one client of a lock library, with connections of its own.
type Peer interface {
	// Lock waits until the name is free, and takes it for the TTL of the options. ctx bounds the waiting; a library may
	// also end the hold with it.
	Lock(ctx context.Context, name string) (Hold, error)
	// Close closes the connections. Remaining holds are left to expire.
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

// ErrForgotten is the error of a Release if the servers did not know the hold any more.
var ErrForgotten = errors.New("the servers have forgotten the hold")

// Options are the arguments for opening a peer.
type Options struct {
	Addrs      []string             // of the masters: one, or all of a quorum; none for At
	At         rueidis.ClientOption // the nodes of a Cluster, or the sentinels of a master
	TTL        time.Duration
	ClientName string // shown by the server, if the library can set it
	// Dial opens a connection; nil: the library does.
	Dial      func(ctx context.Context, addr string) (net.Conn, error)
	Automatic bool // a client of rueidis that pipelines only what is sent at the same time
}

// Library opens peers of one kind.
type Library struct {
	Name   string
	Floor  bool                     // does less than a lock has to
	Quorum bool                     // can lock on several masters
	Queues bool                     // a waiter gets the lock despite a constant stream of requests
	Keeps  bool                     // its holds outlive the TTL, by themselves or by Extend
	Modes  bool                     // works over a bare client of rueidis, in either mode: Options.Automatic
	Key    func(name string) string // a key of the lock, by which a Cluster finds its server
	Open   func(Options) (Peer, error)
}

// TTL is the TTL of every lock, except in workloads about TTLs. It is long enough that nothing is renewed while a pair
// is measured.
const TTL = 10 * time.Second
