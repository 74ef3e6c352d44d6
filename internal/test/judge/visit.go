package judge

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// Visit is what one goroutine has of an RWMutex: a Grant that a conversion changes.
type Visit struct {
	fence atomic.Pointer[fencing.Fence]
	ctx   context.Context
	left  atomic.Bool
}

// NewVisit is the visit of a goroutine that has just locked mu.
func NewVisit(mu *rwlock.RWMutex, name string, mode rwlock.Mode) *Visit {
	v := &Visit{ctx: mu.Context(context.Background())}
	v.Is(fencing.Fence{Resource: name, Token: mu.Token(), Mode: mode})
	return v
}

// Is changes the mode and the token.
func (v *Visit) Is(f fencing.Fence) { v.fence.Store(&f) }

// Fence returns the mode and the token.
func (v *Visit) Fence() fencing.Fence { return *v.fence.Load() }

// Mode is the mode of the section.
func (v *Visit) Mode() rwlock.Mode { return v.fence.Load().Mode }

// Token is the token of the section.
func (v *Visit) Token() fencing.Token { return v.fence.Load().Token }

// Err distinguishes a reader that has left from other readers, which keep the section going. Trust in a lease ends
// before its contexts do: they are cancelled when its mutex is unlocked, and its release may be on its way by then. So
// the deadline decides, too, as Err of a lease does.
func (v *Visit) Err() error {
	if err := context.Cause(v.ctx); err != nil {
		return err
	}
	if v.left.Load() || v.Deadline().IsZero() {
		return rwlock.ErrReleased
	}
	return nil
}

// Deadline is the end of the trust in the section.
func (v *Visit) Deadline() time.Time {
	deadline, _ := fencing.Deadline(v.ctx, v.fence.Load().Resource)
	return deadline
}

// Leave ends the visit.
func (v *Visit) Leave(ctx context.Context, mu *rwlock.RWMutex) error {
	unlock := mu.Unlock
	if v.Mode() == rwlock.Read {
		unlock = mu.RUnlock
	}
	v.left.Store(true)
	return unlock(ctx)
}
