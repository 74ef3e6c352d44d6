package rwlock

import (
	"context"
	"sync"
	"time"
)

// readLimit is WithMaxHold for readers that share a lease. A lease's own limit counts from its grant, so a reader that
// joined late would be ended by the one that came first. This one counts from the last reader that joined.
type readLimit struct {
	lease *Lease // taken without a limit of its own
	after time.Duration
	timer *time.Timer

	mu   sync.Mutex
	at   time.Time
	loss *LostError
	ends map[*context.CancelCauseFunc]struct{} // of the contexts that end with the limit
}

func newReadLimit(lease *Lease, after time.Duration) *readLimit {
	l := &readLimit{
		lease: lease, after: after, at: time.Now().Add(after), ends: make(map[*context.CancelCauseFunc]struct{}),
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer = time.AfterFunc(after, l.fire)
	return l
}

// fire ends the lease where the limit is reached, or waits on for a limit that has moved.
func (l *readLimit) fire() {
	if l.err() != nil {
		_ = l.lease.Release(context.Background()) // unconfirmed, it goes on in the background
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.timer.Reset(time.Until(l.at))
}

// err returns the loss once the limit is reached. It looks at the clock, as Lease.Err does.
func (l *readLimit) err() error {
	l.mu.Lock()
	loss, reached := l.loss, l.loss == nil && !time.Now().Before(l.at)
	if reached {
		loss = &LostError{Name: l.lease.Name(), Token: l.lease.Token(), Reason: MaxHold}
		l.loss = loss
	}
	ends := l.ends
	if loss != nil {
		l.ends = nil
	}
	l.mu.Unlock()
	if loss == nil {
		return nil
	}
	for end := range ends {
		(*end)(loss)
	}
	return loss
}

// extend moves the limit for one more reader, if it is not reached yet.
func (l *readLimit) extend() bool {
	if l.err() != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at = time.Now().Add(l.after)
	return l.loss == nil
}

// context is that of the lease, which ends at the limit too.
func (l *readLimit) context(parent context.Context) context.Context {
	ctx, end := context.WithCancelCause(parent)
	l.mu.Lock()
	if l.loss != nil {
		end(l.loss)
	} else {
		l.ends[&end] = struct{}{}
	}
	l.mu.Unlock()
	inner := l.lease.Context(ctx)
	context.AfterFunc(inner, func() {
		l.mu.Lock()
		delete(l.ends, &end)
		l.mu.Unlock()
		end(nil)
	})
	return inner
}

// stop ends the limit and returns the loss if it was reached.
func (l *readLimit) stop() error {
	l.mu.Lock()
	l.timer.Stop()
	l.mu.Unlock()
	return l.err()
}
