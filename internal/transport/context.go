package transport

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// withoutDeadline hides a context's deadline and keeps its end.
type withoutDeadline struct{ context.Context }

func (withoutDeadline) Deadline() (time.Time, bool) { return time.Time{}, false }

// withValues ends with one context and has the values of another.
type withValues struct {
	context.Context
	values context.Context
}

func (c withValues) Value(key any) any { return c.values.Value(key) }

// Detached is a context that ends after its own time, not with the caller's context, whose values it keeps. It shows no
// deadline. It is reused: context.WithTimeout over context.WithoutCancel would cost six allocations with every release.
type Detached struct {
	context.Context // for its values
	pool            *sync.Pool
	over            chan struct{}
	timer           *time.Timer
}

// Detached starts the time. Stop it once the context is of no use any more.
func (m *Master) Detached(values context.Context, d time.Duration) *Detached {
	c, _ := m.detached.Get().(*Detached)
	if c == nil {
		c = &Detached{pool: &m.detached, over: make(chan struct{})}
	}
	c.Context = values
	if c.timer == nil {
		c.timer = time.AfterFunc(d, c.end)
	} else {
		c.timer.Reset(d)
	}
	return c
}

func (c *Detached) end() { close(c.over) }

// Stop frees the context. Nobody may look at it after that.
func (c *Detached) Stop() {
	if c.timer.Stop() {
		c.Context = nil
		c.pool.Put(c)
	}
}

// Deadline is hidden; see the package's documentation.
func (c *Detached) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the time is over.
func (c *Detached) Done() <-chan struct{} { return c.over }

// Err is context.DeadlineExceeded when the time is over.
func (c *Detached) Err() error {
	select {
	case <-c.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// maskForeignEnd hides from an error that it matches the end of a context where that of the request has not ended: a
// dial has a time limit of its own, and rueidis shares the dial of one caller with the others.
func maskForeignEnd(ctx context.Context, r rueidis.RedisResult) rueidis.RedisResult {
	err := r.NonRedisError()
	if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return r
	}
	return rueidis.NewErrorResult(&linkError{err})
}

// linkError is a failure to connect. It has the text and the types of its cause.
type linkError struct{ cause error }

func (e *linkError) Error() string { return "not connected: " + e.cause.Error() }

func (e *linkError) As(target any) bool { return errors.As(e.cause, target) }
