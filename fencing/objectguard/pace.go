package objectguard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed74116694/fencelock/internal/errs"
)

const (
	minPause    = 10 * time.Millisecond
	maxPause    = 640 * time.Millisecond
	maxStanding = 10 // attempts; the pauses between them last 1.3 to 2.6 s together
)

// pace spaces the attempts of one access, and ends them if there is no progress: each change of the object is another
// access that succeeded, so a change resets the count.
type pace struct {
	pause      time.Duration
	standing   int    // attempts since the object last changed
	generation string // the generation of that change
}

// wait pauses before the next attempt, if the last attempt found the object with this generation. The pause doubles
// each time, up to maxPause, and is shortened by a random part of up to half its length, so that accesses that collided
// do not collide again. The error is the reason why there must be no next attempt.
func (p *pace) wait(ctx context.Context, generation string) error {
	if generation != p.generation {
		p.generation, p.standing = generation, 0
	}
	if p.standing++; p.standing == maxStanding {
		return fmt.Errorf("given up after %d attempts", maxStanding)
	}
	p.pause = min(max(2*p.pause, minPause), maxPause)
	timer := time.NewTimer(p.pause - rand.N(p.pause/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return errs.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
