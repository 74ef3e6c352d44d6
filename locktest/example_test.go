package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/seed74116694/fencelock/locktest"
	"github.com/seed74116694/fencelock/rwlock"
)

// payOnce is the code under test: it pays nothing that it no longer has the lock for.
func payOnce(ctx context.Context, locker *rwlock.Locker, ask func() bool, pay func()) error {
	return locker.Do(ctx, "order:7", func(ctx context.Context) error {
		if ask() && ctx.Err() == nil {
			pay()
		}
		return context.Cause(ctx)
	})
}

// testLoss is func TestLoss(t *testing.T) in a file of tests.
func testLoss(t testing.TB) {
	locks := locktest.New(t)
	ask := func() bool {
		locks.Lose("order:7") // while the code under test asks
		return true
	}
	err := payOnce(t.Context(), locks.Locker, ask, func() { t.Fatalf("paid without the lock") })
	if !errors.Is(err, rwlock.ErrLost) {
		t.Fatalf("the loss was not returned: %v", err)
	}
	if err := payOnce(t.Context(), locks.Locker, func() bool { return true }, func() { fmt.Println("paid") }); err != nil {
		t.Fatalf("the second attempt: %v", err)
	}
}

// A test takes the lock away while the code under test works, and needs no Redis.
func Example() {
	t := &program{}
	testLoss(t)
	t.end()
	// Output: paid
}

// program stands for the *testing.T that a test has, because an example has none.
type program struct {
	testing.TB
	cleanups []func()
}

func (p *program) Helper()                           {}
func (p *program) Context() context.Context          { return context.Background() }
func (p *program) Cleanup(f func())                  { p.cleanups = append(p.cleanups, f) }
func (p *program) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (p *program) end() {
	for i := len(p.cleanups) - 1; i >= 0; i-- {
		p.cleanups[i]()
	}
}
