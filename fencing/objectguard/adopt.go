package objectguard

import (
	"context"

	"github.com/seed74116694/fencelock/fencing"
)

// Adopt turns an object that was written without a guard into a guarded object of f's lock, under a [fencing.Write]
// fence: the content becomes the data, the attributes stay. An object that is guarded already, or does not exist, is
// only claimed, so Adopt may run again.
//
// The earlier writers of the object are unknown, so the registers begin with f. Adopt an object that was never guarded,
// not an object that was overwritten past the guard, and only after all its writers use a guard.
func (g *Guard) Adopt(ctx context.Context, f fencing.Fence, key string) error {
	if err := allowed(f, key); err != nil {
		return err
	}
	_, err := g.do(ctx, f, key, access{check: fencing.Registers.Check, change: raising(f), adopts: true})
	return err
}
