package rwlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/internal/ctxerr"
	"github.com/seed74116694/fencelock/internal/engine"
)

// conversion turns a reader into the writer, or the writer into a reader. No other goroutine and no other process
// writes in between.
//
// In the process: a converting goroutine is neither a reader nor the writer, but it still is a holder
// (cohort.converting). So no goroutine enters, and there is no second conversion. The other readers leave as usual, and
// the last of them signals the conversion instead of the queue. The section stays the same, with its contexts and its
// limit. Only its token and its mode change.
//
// On Redis: the lease is converted as any Lease is. An upgrade requests the conversion at once, before the other
// readers of the process have left, so that readers of other processes are held back and a second upgrade is refused
// there. But the lease becomes a write lease only when they have left, and until then an upgrade that gives up leaves
// everything as it was. A write lease under which readers have followed a writer can stay as it is: it has kept a token
// for an upgrade. A downgrade always converts the lease, so that readers of other processes get in too.
//
// A waiter of the process leads as usual to join the reader that a downgrade has left, or a reader that gave up its
// upgrade.
type conversion struct {
	*RWMutex
	w       *waiter // signalled when the other readers have left
	from    Mode
	section *section
	hold    *remoteHold
	wanted  bool // hold.wanted before the conversion
}

// Upgrade turns a read lock of this RWMutex into the write lock, without a gap: no other goroutine and no other process
// writes in between. It waits until the other readers have left, in this process and elsewhere. It goes before all
// other waiters, and new readers are held back. While it waits, the caller keeps the read lock; it also keeps it if ctx
// ends or WithMaxWait is reached (*AcquireError, *QuorumError). If Redis has granted the write hold, and that hold is
// lost before the other readers have left, the caller keeps the read lock too; the error matches ErrNoQuorum if no
// renewal of that hold was confirmed in time, else ErrNotAcquired. A reader that asks while another reader upgrades, in
// this process or elsewhere, gets ErrUpgrade at once: each would wait for the other. It has to unlock, and then to
// lock.
//
// Once the write lock is granted, Upgrade has succeeded. It then also releases the read hold: it waits for that until
// ctx ends and at most for the release timeout, and a release that is not confirmed by then goes on in the background.
//
// After Upgrade, Token is a new, larger one, and contexts from before show it. Without a read lock the error matches
// ErrNotHeld. With a read lock that is lost it matches ErrLost, and RUnlock is still due. WithMaxHold counts on.
func (m *RWMutex) Upgrade(ctx context.Context) error { return m.convert(ctx, Write, engine.Upgrade) }

// TryUpgrade is Upgrade with a single attempt: while there are other readers, the error matches ErrNotAcquired.
func (m *RWMutex) TryUpgrade(ctx context.Context) error { return m.convert(ctx, Write, engine.Try) }

// Downgrade turns the write lock of this RWMutex into a read lock, without a gap: no other goroutine and no other
// process writes in between. Waiting readers are let in, up to the next waiting writer: the readers of this process
// when Downgrade returns, the readers of other processes when the write hold is released, which is bounded as with
// Upgrade. Token is a new one, as with Upgrade. After an error that matches neither ErrLost nor ErrClosed the caller
// still has the write lock. Without a write lock the error matches ErrNotHeld. With a write lock that is lost it
// matches ErrLost, and Unlock is still due.
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
	defer c.abandon() // also if a hook of the locker panics: no goroutine enters before the conversion is over
	begun := time.Now()
	within, cancel := limited(ctx, m.settings.MaxWait)
	defer cancel()
	if err := c.run(within, entry); err != nil {
		return asWaited(c.failure(err), time.Since(begun), ctx, within)
	}
	c.finish()
	return nil
}

// begin makes one holder the converting one. A single attempt does not begin while there are other holders.
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
	switch { // not under mu: an error that names the holder may be the first to notice that the holder lost the lock
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

// run converts the lease if necessary. On success there is no other holder.
func (c *conversion) run(ctx context.Context, entry engine.Entry) error {
	if lost := c.section.lost(); lost != nil {
		return lost
	}
	if ctx.Err() != nil {
		return c.notAcquired(c.w.mode, 0, ctxerr.Cause(ctx))
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
	return lease.Err() // it may have expired while the other readers left
}

// alone returns when the other readers of the process have left.
func (c *conversion) alone(ctx context.Context) error {
	select {
	case <-c.w.turn:
		return nil
	case <-c.hold.lease.Done():
		return c.hold.lease.Err()
	case <-ctx.Done():
		return c.notAcquired(c.w.mode, 0, ctxerr.Cause(ctx))
	}
}

// failure turns an error of the lease into an error of the section. It also reports a closed locker, which the error of
// its lease alone does not show.
func (c *conversion) failure(err error) error {
	if lost := c.section.lost(); lost != nil {
		return lost
	}
	if errors.Is(c.hold.lease.Err(), ErrReleased) { // err may describe the new hold, which ended with the conversion's ctx
		return fmt.Errorf("%w: lock %q", ErrClosed, c.name)
	}
	return err
}

// finish makes the converting goroutine a holder again, in the other mode.
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

// abandon makes the converting goroutine a holder in its old mode again, unless the conversion has finished. If a
// waiter for a read lease was reported during the conversion, that may have been its own upgrade. So abandon forgets
// the report, and a waiter that still waits is reported again.
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
		c.hold.lease.inner.ResetContended()
		c.hearWanted(c.hold)
	}
}
