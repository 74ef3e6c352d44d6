package rwlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/localqueue"
)

// conversion turns a reader into the writer, or the writer into a reader. No other goroutine and no other process
// writes in between.
//
// In the process: a converting goroutine is neither a reader nor the writer, but it still is a holder. So no goroutine
// enters, and there is no second conversion. The other readers leave as usual, and the last of them signals the
// conversion instead of the queue. The section stays the same, with its contexts and its limit. Only its token and its
// mode change.
//
// On Redis: the lease is converted as any Lease is. An upgrade requests the conversion at once, before the other
// readers of the process have left, so that readers of other processes are held back and a second upgrade is refused
// there. But the lease becomes a write lease only when they have left, and until then an upgrade that gives up leaves
// everything as it was. A write lease under which readers have followed a writer can stay as it is: it has kept a token
// for an upgrade. A downgrade always converts the lease, so that readers of other processes get in too.
//
// Waiting readers of the process join the reader that a downgrade has left, or a reader that gave up its upgrade: see
// unlock.
type conversion struct {
	*RWMutex
	w            *localqueue.Waiter // signalled when the other readers have left
	from         Mode
	section      *section
	hold         *remoteHold
	wasContended bool // hold.contended before the conversion
}

func (m *RWMutex) convert(ctx context.Context, to Mode, entry engine.Entry) error {
	if m.locker == nil {
		return m.unusable()
	}
	begun := time.Now()
	c := &conversion{RWMutex: m, w: localqueue.NewWaiter(to, begun), from: Read}
	if to == Read {
		c.from = Write
	}
	if err := c.begin(entry); err != nil {
		return err
	}
	defer c.abandon() // also if a hook of the locker panics: no goroutine enters before the conversion is over
	within, cancel := limited(ctx, m.settings.MaxWait, begun)
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
	reads := c.from == Read && c.queue.Readers() > 0
	taken := reads && c.queue.IsUpgrading()
	held, alone := c.queue.BeginConversion(c.w, c.from)
	refused := held && !alone && entry == engine.Try
	if held {
		c.section, c.hold = c.current.Load(), c.remote.Load()
		c.wasContended = c.hold.contended
	}
	if refused {
		c.queue.EndConversion(c.from)
	}
	c.unlock()
	switch { // not under mu: an error that names the holder may be the first to notice that the holder lost the lock
	case taken:
		return fmt.Errorf("%w: another reader of lock %q is upgrading already", ErrUpgrade, c.name)
	case refused:
		if lost := c.section.lost(); lost != nil {
			return lost
		}
		return c.notAcquired(c.w.Mode(), 0, nil)
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
		return c.notAcquired(c.w.Mode(), 0, errs.Cause(ctx))
	}
	lease, err := c.hold.lease, error(nil)
	if lease.Mode() == c.w.Mode() {
		err = c.alone(ctx)
	} else {
		err = lease.convert(ctx, c.w.Mode(), entry, c.alone)
	}
	if err != nil {
		return err
	}
	return lease.Err() // it may have expired while the other readers left
}

// alone returns when the other readers of the process have left.
func (c *conversion) alone(ctx context.Context) error {
	select {
	case <-c.w.Turn():
		return nil
	case <-c.hold.lease.Done():
		return c.hold.lease.Err()
	case <-ctx.Done():
		return c.notAcquired(c.w.Mode(), 0, errs.Cause(ctx))
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
	c.mu.Lock()
	anew := c.hold.id != c.hold.lease.inner.Hold()
	if anew {
		c.hold.setGrant()
	}
	c.section.fence.set(c.w.Mode(), c.hold.takeToken())
	c.queue.EndConversion(c.w.Mode())
	c.unlock()
	if anew {
		c.watchContended(c.hold)
	}
}

// abandon makes the converting goroutine a holder in its old mode again, unless the conversion has finished. A waiter
// that was reported for a read lease during the conversion may have been its own upgrade. So abandon drops the report,
// and a waiter that still waits is reported again.
func (c *conversion) abandon() {
	c.mu.Lock()
	if !c.queue.IsConverting(c.w) {
		c.unlock()
		return
	}
	itself := !c.wasContended && c.hold.contended && c.hold.lease.Mode() == Read
	if itself {
		c.hold.contended = false
	}
	c.queue.EndConversion(c.from)
	c.unlock()
	if itself {
		c.hold.lease.inner.ResetContended()
		c.watchContended(c.hold)
	}
}
