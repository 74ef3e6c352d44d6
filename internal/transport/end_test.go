package transport_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

// lateLife is a context whose children end later than itself, as they may by a moment.
type lateLife struct {
	context.Context
	mu       sync.Mutex
	children []func()
}

func (l *lateLife) AfterFunc(f func()) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.children = append(l.children, f)
	return func() bool { return false }
}

func (l *lateLife) Value(key any) any { return nil } // or the context package finds the parent's own children

func (l *lateLife) endChildren() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range l.children {
		end()
	}
	l.children = nil
}

// What is left when the engine gives up is not posted again: no other node has its slots. This test hangs where it is.
func TestNothingIsPostedAgainWhenTheEngineEnds(t *testing.T) {
	mini := testredis.NewMini(t)
	link := mini.NewLink()
	life := new(lateLife)
	b := newBed(t, link.Client(t), func(c *transport.Config) {
		life.Context = c.Life
		c.Life = life
	})
	b.mustDo()
	link.Hold(testredis.Both)
	for range 100 { // more than are on their way at once
		b.Post(transport.Call{
			Script: refresh, Keys: keysOf("any"), Args: []string{"0"}, Done: func(rueidis.RedisResult, clock.Instant) {},
		})
		time.Sleep(100 * time.Microsecond)
	}
	b.end()
	time.Sleep(10 * time.Millisecond) // the pipeline sees the end
	life.endChildren()
	link.Restore()
	b.tasks.Wait()
}
