package rwlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// section is what one local writer, or all local readers that hold the lock together, have of an RWMutex: a token, and
// the contexts that end with it. It lasts until the last of them has unlocked, also after the lease was lost.
type section struct {
	mutex  *place
	remote *remoteHold
	fence  stamp  // changes with a conversion
	bound  *bound // of WithMaxHold, or nil

	contexts // its mu, taken after the RWMutex's, guards the bound too; over is ErrReleased or a *LostError
}

// lost returns the *LostError of the section if its lease was lost or its bound is reached, else nil. It is not called
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
	ends.cancel(over)
	return over
}

// finish is end without the cancellation of the contexts, which is left to the caller. It may be called under mu.
func (s *section) finish(err error) (ends sharedEnds, over error) {
	ends, over = s.contexts.finish(err)
	s.stopBound()
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
	own := &leaseContext{Context: parent, end: s.endWith(parent), lease: s.remote.lease, section: s}
	return fencing.NewSourceContext(own, s)
}

// Fence returns the fence of the section, for fencing.NewSourceContext.
func (s *section) Fence() fencing.Fence {
	mode, token := s.fence.get()
	return fencing.Fence{Resource: s.mutex.name, Token: token, Mode: mode}
}

// Deadline returns until when the section is trusted, for fencing.Deadline: the deadline of its lease, or its bound if
// the bound is sooner. After the end it is the zero time, as for a lease.
func (s *section) Deadline() time.Time {
	if s.lost() != nil {
		return time.Time{}
	}
	deadline := s.remote.lease.Deadline()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.over != nil:
		return time.Time{}
	case s.bound != nil && s.bound.end.Before(deadline):
		return s.bound.end
	default:
		return deadline
	}
}

// stands reports whether the section has a holder. It does not ask Redis: a section with a lost lease stands until it
// is unlocked too.
func (s *section) stands() bool { return s.mutex.in.Load() == s }

// holder describes the section and the number of its holders as Inspect would, for the error of a goroutine that it
// kept out. That goroutine has sent no request, because this process knows its own holders.
func (s *section) holder(in int) *Holder {
	lease, mode := s.remote.lease, s.fence.mode()
	return &Holder{
		Owner: lease.Owner(), Hold: lease.inner.Hold(), Meta: s.mutex.settings.Meta, Mode: mode, Count: in, Cohort: true,
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
		return fmt.Errorf("it was lost and is not unlocked yet: %v", lost)
	default:
		return fmt.Errorf("%w; it was lost and is not unlocked yet: %v", cause, lost)
	}
}

// bound is WithMaxHold for one section. The engine's own limit does not suffice: it counts from the grant of the lease,
// under which many sections follow each other. The section's mu guards it.
type bound struct {
	max   time.Duration
	end   time.Time // counted from the last reader that joined
	timer *time.Timer
}

// setBound starts the bound, if there is one.
func (s *section) setBound(limit time.Duration) {
	if limit == 0 {
		return
	}
	s.bound = &bound{max: limit, end: time.Now().Add(limit)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound.timer = time.AfterFunc(limit, s.fire)
}

// stopBound stops the timer after the end of the section. No timer is set after that.
func (s *section) stopBound() {
	if s.bound != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bound.timer.Stop()
	}
}

// fire ends the section if the bound is reached, or sets the timer again if the bound has moved.
func (s *section) fire() {
	if s.reached() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.bound.timer.Reset(time.Until(s.bound.end))
	}
}

// reached returns the loss once the bound is reached. It checks the clock, as Lease.Err does, so it does not depend on
// when the timer fires. The goroutine that notices the end also ends the lease as lost: the section stands until it is
// unlocked, but another process gets the lock. Like lost, it is not called under mu.
func (s *section) reached() error {
	if s.bound == nil {
		return nil
	}
	s.mu.Lock()
	over, reached := s.over, !time.Now().Before(s.bound.end)
	s.mu.Unlock()
	if over == nil && reached {
		over = s.end(&LostError{Name: s.mutex.name, Token: s.fence.token(), Reason: MaxHold, Limit: s.bound.max})
	}
	loss, lost := errors.AsType[*LostError](over)
	if !lost { // its holders have just left, and the next section may stand under the lease
		return nil
	}
	// Every goroutine that gets here calls it, so that the lease is lost before Unlock comes to release it.
	s.remote.lease.inner.LoseAt(s.bound.max, loss.Token)
	return over
}

// extend moves the bound for one more reader, unless it is already reached. Each reader is promised the whole time, so
// the last reader that joined counts.
func (s *section) extend() bool {
	if s.lost() != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bound.end = time.Now().Add(s.bound.max)
	return s.over == nil
}

// stamp is a token and the mode that it was granted for, in one word: both change at once, and a read needs no mutex.
//
// A caller that reads the token during a conversion gets the old pair or the new one. Both were granted, and the
// storage orders them.
type stamp struct{ word atomic.Uint64 } // a token has 53 bits

const modeBits = 2 // the lowest ones

// set is called under the RWMutex's mu.
func (s *stamp) set(mode Mode, token fencing.Token) {
	s.word.Store(uint64(token)<<modeBits | uint64(mode))
}

// get needs no mutex.
func (s *stamp) get() (Mode, fencing.Token) {
	word := s.word.Load()
	return Mode(word & (1<<modeBits - 1)), fencing.Token(word >> modeBits)
}

func (s *stamp) mode() Mode {
	mode, _ := s.get()
	return mode
}

func (s *stamp) token() fencing.Token {
	_, token := s.get()
	return token
}
