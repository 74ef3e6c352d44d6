package rwlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/joined"
)

// A conversion turns one who is in from a reader into the writer, or the other way round, and nobody writes in between.
//
// In the process: meanwhile it is neither a reader nor the writer, but still in (cohort.converting). So nobody enters,
// there is no second one, and the other readers leave as ever: the last of them finds the conversion instead of the
// queue. The section stays the same, with its contexts and its limit; its token and mode are what changes.
//
// On Redis: the lease is converted as any Lease is. An upgrade asks for that at once, before the other readers of the
// process have left, so that readers of other processes are held back and a second upgrade is refused there; but the
// lease becomes a write lease only when they have left, and until then whoever gives up has what it had. A write lease
// under which readers have followed a writer can stay as it is: it has kept a token for that. A downgrade always
// converts the lease, so that readers of other processes get in too.
//
// Whoever waits in the process, for a turn beside the reader that a downgrade has left or that has given up, leads as
// ever.
type conversion struct {
	*RWMutex
	w       *waiter // signalled when the other readers have left
	from    Mode
	section *section
	hold    *remoteHold
	wanted  bool // the hold was so before
}

// Upgrade turns a read lock of this RWMutex into the write lock, without a gap: nobody writes in between. It waits
// until the other readers have left, in this process and elsewhere, before all others who wait and with new readers
// held back. While it waits it goes on reading, and if ctx ends or WithMaxWait is reached (*AcquireError, *QuorumError)
// it still does. If Redis has granted the write hold, and that is lost before the other readers have left, it also goes
// on reading; the error matches ErrNoQuorum if no renewal of that hold was confirmed in time, else ErrNotAcquired. A
// reader that asks while another one upgrades, of this process or elsewhere, gets ErrUpgrade at once: each would wait
// for the other. It has to unlock, and then to lock.
//
// Once it is granted it has succeeded: it also gives back the read hold, until ctx ends and at most for the release
// timeout, and what is not confirmed by then is pursued in the background.
//
// Token is a new, larger one after it, and contexts from before show it. Without a read lock the error matches
// ErrNotHeld; with one that is lost, ErrLost, and RUnlock is still due. WithMaxHold counts on.
func (m *RWMutex) Upgrade(ctx context.Context) error { return m.convert(ctx, Write, engine.Upgrade) }

// TryUpgrade is Upgrade with a single attempt: beside other readers the error matches ErrNotAcquired.
func (m *RWMutex) TryUpgrade(ctx context.Context) error { return m.convert(ctx, Write, engine.Try) }

// Downgrade turns the write lock of this RWMutex into a read lock, without a gap: nobody writes in between, and the
// readers who wait are let in, up to the next writer who waits: those of this process when it returns, those of others
// when the write hold is given back, which is bounded as with Upgrade. Token is a new one, as with Upgrade. On an error
// that matches neither ErrLost nor ErrClosed it is still the write lock. Without a write lock the error matches
// ErrNotHeld; with one that is lost, ErrLost, and Unlock is still due.
func (m *RWMutex) Downgrade(ctx context.Context) error { return m.convert(ctx, Read, engine.Try) }

func (m *RWMutex) convert(ctx context.Context, to Mode, entry engine.Entry) error {
	if m.isUnusable() {
		return m.unusable()
	}
	c := &conversion{RWMutex: m, w: newWaiter(to), from: Read}
	if to == Read {
		c.from = Write
	}
	if err := c.begin(entry); err != nil {
		return err
	}
	defer c.abandon() // also when a hook of the locker panics: nobody gets in before it is over
	begun := time.Now()
	within, cancel := m.limited(ctx)
	defer cancel()
	if err := c.run(within, entry); err != nil {
		return asWaited(c.failure(err), time.Since(begun), ctx, within)
	}
	c.finish()
	return nil
}

// begin takes out one that is in. A single attempt does not begin beside others.
func (c *conversion) begin(entry engine.Entry) error {
	c.mu.Lock()
	reads := c.from == Read && c.local.readers.number() > 0
	taken := reads && c.local.upgrading()
	held, alone := c.local.convert(c.w, c.from)
	refused := held && !alone && entry == engine.Try
	if held {
		c.section, c.hold = c.in.Load(), c.remote.Load()
		c.wanted = c.hold.wanted
	}
	if refused {
		c.local.settle(c.from)
	}
	c.unlock()
	switch { // not under mu: an error that names the holder may be the first to notice that it has lost the lock
	case taken:
		return fmt.Errorf("%w: another reader of lock %q is upgrading already", ErrUpgrade, c.name)
	case refused:
		if lost := c.section.lost(); lost != nil {
			return lost
		}
		return c.notAcquired(c.w.mode, 0, nil)
	case !held:
		return fmt.Errorf("%w: %q for %s", ErrNotHeld, c.name, c.from)
	default:
		return nil
	}
}

// run converts the lease where that is due. On success nobody else is in.
func (c *conversion) run(ctx context.Context, entry engine.Entry) error {
	if lost := c.section.lost(); lost != nil {
		return lost
	}
	if ctx.Err() != nil {
		return c.notAcquired(c.w.mode, 0, joined.EndOf(ctx))
	}
	lease, err := c.hold.lease, error(nil)
	if lease.Mode() == c.w.mode {
		err = c.alone(ctx)
	} else {
		err = lease.convert(ctx, c.w.mode, entry, c.alone)
	}
	if err != nil {
		return err
	}
	return lease.Err() // its time may have ended while the others left
}

// alone returns when the other readers of the process have left.
func (c *conversion) alone(ctx context.Context) error {
	select {
	case <-c.w.turn:
		return nil
	case <-c.hold.lease.Done():
		return c.hold.lease.Err()
	case <-ctx.Done():
		return c.notAcquired(c.w.mode, 0, joined.EndOf(ctx))
	}
}

// failure tells of the section what was told of the lease, and of a closed locker what its lease alone does not say.
func (c *conversion) failure(err error) error {
	if lost := c.section.lost(); lost != nil {
		return lost
	}
	if errors.Is(c.hold.lease.Err(), ErrReleased) { // err may tell of another lease, whose end was that of ctx
		return fmt.Errorf("%w: lock %q", ErrClosed, c.name)
	}
	return err
}

// finish lets the one who converts in again, in the other mode.
func (c *conversion) finish() {
	g := granted(c.hold.lease)
	c.mu.Lock()
	anew := g.id != c.hold.id
	if anew {
		c.hold.grant = g
	}
	c.section.fence.set(c.w.mode, c.hold.take())
	c.local.settle(c.w.mode)
	c.unlock()
	if anew {
		c.hearWanted(c.hold)
	}
}

// abandon lets it in again as what it was, unless it has finished. That somebody waited for a read lease meanwhile may
// have been its own upgrade: whoever waits yet is heard of anew.
func (c *conversion) abandon() {
	c.mu.Lock()
	if c.local.converting != c.w {
		c.unlock()
		return
	}
	itself := !c.wanted && c.hold.wanted && c.hold.lease.Mode() == Read
	if itself {
		c.hold.wanted = false
	}
	c.local.settle(c.from)
	c.unlock()
	if itself {
		engine.ForgetWanted(&c.hold.lease.inner)
		c.hearWanted(c.hold)
	}
}
