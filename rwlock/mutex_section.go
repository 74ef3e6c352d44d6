package rwlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/ctxend"
)

// section is what one local writer, or all local readers that hold the lock together, have of an RWMutex: a token, and
// the contexts that end with it. It lasts until the last of them has unlocked, also after the lease was lost.
type section struct {
	mutex  *RWMutex
	remote *remoteHold
	fence  atomicFence // changes with a conversion
	limit  *holdLimit  // of WithMaxHold, or nil

	ctxend.Set // of contexts; it is over with ErrReleased or a *LostError
}

// lost returns the *LostError of the section if its lease was lost or its limit is reached, else nil. It is not called
// under mu: a loss that it notices ends contexts and runs hooks.
func (s *section) lost() error {
	if err := s.reached(); err != nil {
		return err
	}
	return s.asLost(s.remote.lease.Err())
}

// asLost turns the loss of the lease into the loss of the section, which may have another token. It returns nil if the
// lease was not lost.
func (s *section) asLost(err error) error {
	loss, ok := errors.AsType[*LostError](err)
	if !ok {
		return nil
	}
	own := *loss
	own.Token = s.fence.token()
	return &own
}

// end ends the section and its contexts, once, and returns the cause. The first cause counts: a release after a loss
// must not report success to goroutines that have worked under the lock.
func (s *section) end(err error) error {
	ends, over := s.finish(err)
	ends.Cancel(over)
	return over
}

// finish is end without the cancellation of the contexts, which is left to the caller. It may be called under mu.
func (s *section) finish(err error) (ends ctxend.Ends, over error) {
	ends, over = s.Finish(err)
	if s.limit != nil { // no timer is set after that
		s.limit.mu.Lock()
		s.limit.timer.Stop()
		s.limit.mu.Unlock()
	}
	return ends, over
}

// leaseEnded ends the contexts of the section because the lease has ended. The loss names the section's own token,
// because its holders have shown this token to the storage.
func (s *section) leaseEnded(err error) {
	if loss := s.asLost(err); loss != nil {
		err = loss
	}
	_ = s.end(err)
}

// context returns parent with the fence, until the section or its lease ends. A context that is made after the end has
// ended already.
func (s *section) context(parent context.Context) context.Context {
	own := &leaseContext{Context: s.Join(parent), lease: s.remote.lease, section: s}
	return fencing.NewSourceContext(own, s)
}

// Fence returns the fence of the section, for fencing.NewSourceContext.
func (s *section) Fence() fencing.Fence {
	mode, token := s.fence.get()
	return fencing.Fence{Resource: s.mutex.name, Token: token, Mode: mode}
}

// Deadline returns until when the section is trusted, for fencing.Deadline: the deadline of its lease, or its limit if
// the limit is sooner. After the end it is the zero time, as for a lease.
func (s *section) Deadline() time.Time {
	if s.lost() != nil {
		return time.Time{}
	}
	deadline := s.remote.lease.Deadline()
	if s.limit != nil {
		if end := s.limit.at(); end.Before(deadline) {
			deadline = end
		}
	}
	if s.Over() != nil {
		return time.Time{}
	}
	return deadline
}

// holder describes the section and the number of its holders as Inspect would, for the error of a goroutine that it
// kept out. That goroutine has sent no request, because this process knows its own holders.
func (s *section) holder(in int) *Holder {
	lease, mode := s.remote.lease, s.fence.mode()
	return &Holder{
		Owner: lease.Owner(), Hold: lease.inner.Hold(), Meta: s.mutex.settings.Meta, Mode: mode, Count: in, Shared: true,
		Remaining: max(0, time.Until(lease.Deadline())), Held: time.Since(s.remote.since),
	}
}

// notUnlocked adds to the cause of a failure that the holder has lost the lock and has not unlocked it. Otherwise a
// caller would look for a holder in another process, where there is none.
func (s *section) notUnlocked(cause error) error {
	lost := s.lost()
	switch {
	case lost == nil:
		return cause
	case cause == nil:
		return fmt.Errorf("the holder has lost it and has not unlocked it: %v", lost)
	default:
		return fmt.Errorf("%w; the holder has lost it and has not unlocked it: %v", cause, lost)
	}
}

// holdLimit is WithMaxHold for one section. The engine's own limit does not suffice: it counts from the grant of the
// lease, under which many sections follow each other.
type holdLimit struct {
	max   time.Duration
	mu    sync.Mutex // guards the fields below; taken after the RWMutex's
	end   time.Time  // counted from the last reader that joined
	timer *time.Timer
}

// at returns the time of the limit.
func (l *holdLimit) at() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// onLimit ends the section if the limit is reached, or sets the timer again if the limit has moved.
func (s *section) onLimit() {
	if s.reached() != nil {
		return
	}
	s.limit.mu.Lock()
	defer s.limit.mu.Unlock()
	if s.Over() == nil { // else finish has stopped the timer, or will
		s.limit.timer.Reset(time.Until(s.limit.end))
	}
}

// reached returns the loss once the limit is reached. It checks the clock, as Lease.Err does, so it does not depend on
// when the timer fires. The goroutine that notices the end also ends the lease as lost: the section stands until it is
// unlocked, but another process gets the lock. Like lost, it is not called under mu.
func (s *section) reached() error {
	if s.limit == nil {
		return nil
	}
	over, reached := s.Over(), !time.Now().Before(s.limit.at())
	if over == nil && reached {
		over = s.end(&LostError{Name: s.mutex.name, Token: s.fence.token(), Reason: ReasonMaxHold, Limit: s.limit.max})
	}
	loss, lost := errors.AsType[*LostError](over)
	if !lost { // its holders have just left, and the next section may stand under the lease
		return nil
	}
	// Every goroutine that gets here calls it, so that the lease is lost before Unlock comes to release it.
	s.remote.lease.inner.LoseAt(s.limit.max, loss.Token)
	return over
}

// extend reports whether a reader may join the section, under the RWMutex's mu, and gives the section the time of
// WithMaxHold that this reader is promised. Another process that waits, or the end of the lease or of the limit, keeps
// the reader out. extend only looks at the limit, because reached must not be called under mu.
func (s *section) extend(now clock.Instant) bool {
	if s.remote.contended || !s.remote.lease.inner.Trusted(now) {
		return false
	}
	if s.limit == nil {
		return true
	}
	s.limit.mu.Lock()
	defer s.limit.mu.Unlock()
	joined := time.Now()
	if s.Over() != nil || !joined.Before(s.limit.end) {
		return false
	}
	s.limit.end = joined.Add(s.limit.max)
	return true
}

// atomicFence is a token and the mode that it was granted for, in one word: both change at once, and a read needs no
// mutex.
//
// A caller that reads the token during a conversion gets the old pair or the new one. Both were granted, and the
// storage orders them.
type atomicFence struct{ word atomic.Uint64 } // a token has 53 bits

const modeBits = 2 // the lowest ones

// set is called under the RWMutex's mu.
func (f *atomicFence) set(mode Mode, token fencing.Token) {
	f.word.Store(uint64(token)<<modeBits | uint64(mode))
}

// get needs no mutex.
func (f *atomicFence) get() (Mode, fencing.Token) {
	word := f.word.Load()
	return Mode(word & (1<<modeBits - 1)), fencing.Token(word >> modeBits)
}

func (f *atomicFence) mode() Mode {
	mode, _ := f.get()
	return mode
}

func (f *atomicFence) token() fencing.Token {
	_, token := f.get()
	return token
}
