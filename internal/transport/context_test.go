package transport_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

type key struct{}

func TestADetachedContextHasItsOwnTimeAndTheCallersValues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := transport.NewMaster(&transport.Config{}, 0, &modeClient{})
		caller, cancel := context.WithTimeout(context.WithValue(context.Background(), key{}, "a trace"), time.Hour)
		cancel()
		d := m.Detached(caller, time.Second)
		require.Equal(t, "a trace", d.Value(key{}))
		_, dated := d.Deadline()
		require.False(t, dated, "a deadline would close the connection")
		require.NoError(t, d.Err())
		begun := time.Now()
		<-d.Done()
		require.Equal(t, time.Second, time.Since(begun))
		require.ErrorIs(t, d.Err(), context.DeadlineExceeded)
		d.Stop()
	})
}

// What a callee keeps of a context, such as the timer of a dial that ends a child context, may look at it at any time
// after the call, and finds what it found before. The alarm of the context serves others by then.
func TestADetachedContextOutlivesItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := transport.NewMaster(&transport.Config{}, 0, &modeClient{})
		for range 10 {
			caller := context.WithValue(context.Background(), key{}, "a trace")
			d := m.Detached(caller, time.Second)
			child, cancel := context.WithTimeout(d, time.Minute)
			defer cancel()
			d.Stop()
			d.Stop() // does not stop another's
			next := m.Detached(context.Background(), 3*time.Second)
			begun := time.Now()
			<-next.Done()
			require.Equal(t, 3*time.Second, time.Since(begun))
			next.Stop()
			require.NoError(t, child.Err(), "another call's time does not end it")
			require.Equal(t, "a trace", child.Value(key{}))
			require.Nil(t, next.Value(key{}))
			<-child.Done() // its timer takes it out of its parent
			synctest.Wait()
			require.NoError(t, d.Err())
		}
	})
}

func TestADetachedContextCostsTwoAllocationsAtMost(t *testing.T) {
	m := transport.NewMaster(&transport.Config{}, 0, &modeClient{})
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() {
		m.Detached(context.Background(), time.Minute).Stop()
	}), 2.0)
}

func TestACallUnderADetachedContext(t *testing.T) {
	for name, client := range clients {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mini := testredis.NewMini(t)
				b := newBed(t, client(t, mini.NewLink()))
				b.mustDo()
				mini.Freeze()
				for range 3 {
					d := b.Detached(context.Background(), 50*time.Millisecond)
					begun := time.Now()
					require.ErrorIs(t, b.do(d), context.DeadlineExceeded)
					require.Equal(t, 50*time.Millisecond, time.Since(begun))
					d.Stop()
				}
				mini.Thaw()
				synctest.Wait()
				d := b.Detached(context.Background(), time.Second)
				require.NoError(t, b.do(d))
				d.Stop()
			})
		})
	}
}
