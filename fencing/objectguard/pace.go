package objectguard

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/seed74116694/fencelock/internal/joined"
)

const (
	minPause    = 10 * time.Millisecond
	maxPause    = 640 * time.Millisecond
	maxStanding = 10 // attempts; the pauses between them last 1.3 to 2.6 s together
)

// pace spaces the attempts of one access, and ends them where nothing moves: each
// time that the object changes somebody has succeeded, so then it goes on.
type pace struct {
	pause      time.Duration
	standing   int    // attempts since the object last changed
	generation string // what it was then
}

// wait pauses before the next attempt, if the last one found the object with this
// generation. The pause doubles each time, and is up to half as long by chance,
// so that those who met once do not meet again. The error says why there is to be
// no next attempt.
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
		return joined.EndOf(ctx)
	case <-timer.C:
		return nil
	}
}
