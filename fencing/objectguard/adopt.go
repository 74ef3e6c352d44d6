package objectguard

import (
	"context"

	"github.com/seed74116694/fencelock/fencing"
)

// Adopt makes an object that was written without a guard a guarded one of f's
// lock, under a [fencing.Write] fence: the content becomes the data, the attributes
// stay. An object that is guarded already, or does not exist, is only claimed, so
// Adopt may run again.
//
// Nothing is known of who wrote the object, so the registers begin with f. Adopt
// what was never guarded, not what somebody has overwritten past the guard, and
// only once all who write to it use a guard.
func (g *Guard) Adopt(ctx context.Context, f fencing.Fence, key string) error {
	if err := allowed(f, key); err != nil {
		return err
	}
	_, err := g.do(ctx, f, key, access{check: fencing.Registers.Check, change: raising(f), adopts: true})
	return err
}
