package rwlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// section is what one local writer, or all local readers that are in together, have of an RWMutex: a token, and the
// contexts that end with it. It lasts until the last of them has unlocked, also when the lease was lost before.
type section struct {
	mutex  *place
	remote *remoteHold
	fence  stamp  // changes with a conversion
	bound  *bound // of WithMaxHold, or nil

	contexts // its mu, taken under the RWMutex's, guards the bound too; over is ErrReleased or a *LostError
}

// lost returns the *LostError of a section whose lease or bound has ended, or nil. It is not called under mu: a loss
// that is noticed here ends contexts and runs hooks.
func (s *section) lost() error {
	if err := s.reached(); err != nil {
		return err
	}
	return s.asLost(s.remote.lease.Err())
}

// asLost tells of the section what was told of the lease, whose token may be another, and nil where it was not lost.
func (s *section) asLost(err error) error {
	loss, ok := errors.AsType[*LostError](err)
	if !ok {
		return nil
	}
	own := *loss
	own.Token = s.fence.token()
	return &own
}

// end ends the section, once, and its contexts. It returns what has ended it. The first cause counts: a release after a
// loss must not tell those who worked under the lock that all was well.
func (s *section) end(err error) error {
	over, ends := s.finish(err)
	ends.cancel(over)
	return over
}

// finish is end but for the contexts, which the caller cancels: it may be called under mu.
func (s *section) finish(err error) (over error, ends sharedEnds) {
	over, ends = s.contexts.finish(err)
	s.stopBound()
	return over, ends
}

// leaseEnded ends the contexts of the section because the lease has ended. The loss names the section's own token,
// which is the one that its holders have shown to the storage.
func (s *section) leaseEnded(err error) {
	if loss := s.asLost(err); loss != nil {
		err = loss
	}
	_ = s.end(err)
}

// context is parent with the fence, until the section or its lease ends. One that is made after the end ends at once.
func (s *section) context(parent context.Context) context.Context {
	own := &leaseContext{Context: parent, end: s.endWith(parent), lease: s.remote.lease, section: s}
	return fencing.NewSourceContext(own, s)
}

// Fence returns the fence of the section, for fencing.NewSourceContext.
func (s *section) Fence() fencing.Fence {
	mode, token := s.fence.get()
	return fencing.Fence{Resource: s.mutex.name, Token: token, Mode: mode}
}

// Deadline returns until when the section is trusted, for fencing.Deadline: by its lease, or by its bound if that is
// sooner. As of a lease it is the zero time after the end.
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

// stands reports whether somebody is in the section. It does not ask Redis: also one whose lease was lost stands until
// it is unlocked.
func (s *section) stands() bool { return s.mutex.in.Load() == s }

// holder shows the section and how many are in it as Inspect would, for the error of one that it kept out. That one has
// asked nobody: who is in its way is known here.
func (s *section) holder(in int) *Holder {
	lease, mode := s.remote.lease, s.fence.mode()
	return &Holder{
		Owner: lease.Owner(), Hold: lease.inner.Hold(), Meta: s.mutex.settings.Meta, Mode: mode, Count: in, Cohort: true,
		Remaining: max(0, time.Until(lease.Deadline())), Held: time.Since(s.remote.since),
	}
}

// notUnlocked adds to the cause of a failure that the holder has lost the lock and not unlocked it. Without that a
// caller would look for a holder elsewhere, where there is none.
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
