package engine

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed74116694/fencelock/internal/transport"
)

// mailbox is where the messages of the masters arrive, and what is known of whether they can.
type mailbox struct {
	e         *Engine
	channel   string
	listening atomic.Bool                   // to every master, at least once
	deaf      []atomic.Pointer[NodeFailure] // why the messages of a master cannot be had

	mu    sync.Mutex
	heard []bool // masters that have been listened to
}

func newMailbox(e *Engine, channel string, masters int) *mailbox {
	return &mailbox{
		e: e, channel: channel, heard: make([]bool, masters), deaf: make([]atomic.Pointer[NodeFailure], masters),
	}
}

// route is how messages reach this engine, as a hold's details name it: p and a channel where a message that nobody
// receives tells that nobody listens; b before this engine has listened to every master, so that its first waiters are
// not passed over for being early.
func (b *mailbox) route() string {
	if b.listening.Load() {
		return "p" + b.channel
	}
	return "b" + b.channel
}

// onListen is called when messages of the master arrive from now on.
func (b *mailbox) onListen(m *transport.Master) {
	b.deaf[m.Index].Store(nil)
	b.noteListening(m)
	b.e.waiters[m.Index].wakeAll()
}

// noteListening notes that the master has been listened to, which stays so: after an interruption a message reaches
// nobody, and the wait sets ask again when the next subscription stands.
func (b *mailbox) noteListening(m *transport.Master) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.heard[m.Index] = true
	if !slices.Contains(b.heard, false) {
		b.listening.Store(true)
	}
}

// onDeaf is called when messages of the master cannot be had. Where that does not pass by itself, waiting would mean
// polling, in silence; so whoever waits is told.
func (b *mailbox) onDeaf(m *transport.Master, err error) {
	if !m.Permanent(err) {
		return
	}
	b.deaf[m.Index].Store(&NodeFailure{Index: m.Index, Addr: m.Addr(), Err: err})
	cause := b.deafness()
	if cause == nil {
		return
	}
	b.e.failWaiters(Silent, cause)
}

// deafness returns why messages cannot be had from so many masters that no quorum is left.
func (b *mailbox) deafness() error {
	var last error
	n := 0
	for i := range b.deaf {
		if f := b.deaf[i].Load(); f != nil {
			n, last = n+1, f
		}
	}
	if n > len(b.deaf)-b.e.quorum() {
		return last
	}
	return nil
}
