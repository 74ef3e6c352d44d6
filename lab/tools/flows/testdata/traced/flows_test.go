package traced_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/lab/tools/flows/trace"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// flows are what a lock goes through most often, and at its worst. start is called where the count begins.
var flows = []struct {
	name string
	run  func(w *testkit.World, a, b *testkit.Process, start func())
}{
	{"pair", func(w *testkit.World, a, _ *testkit.Process, start func()) {
		a.Section("n")
		start()
		a.Section("n")
	}},
	{"hand-off", func(w *testkit.World, a, b *testkit.Process, start func()) {
		for _, counted := range []bool{false, true} { // the first one subscribes
			held := a.Take("n", rwlock.Write)
			b.Section("other") // its connection is in use
			if counted {
				start()
			}
			waits := b.InTurn(w.Ctx, "n", rwlock.Write)
			w.Settle()
			require.NoError(w, held.Release(w.Ctx))
			require.NoError(w, waits.Result())
			w.Settle()
		}
	}},
	{"mutex", func(w *testkit.World, a, _ *testkit.Process, start func()) {
		m := a.RWMutex("n")
		require.NoError(w, m.Lock(w.Ctx))
		require.NoError(w, m.Unlock(w.Ctx))
		require.NoError(w, m.Lock(w.Ctx))
		w.Settle()
		start()
		waits := w.Call(w.Ctx, m.Lock)
		require.NoError(w, m.Unlock(w.Ctx))
		require.NoError(w, waits.Result())
	}},
	{"loss", func(w *testkit.World, a, _ *testkit.Process, start func()) {
		held := a.Take("n", rwlock.Write)
		ctx := held.Context(w.Ctx)
		w.Mini.Freeze()
		time.Sleep(time.Until(held.Deadline()) - time.Millisecond) // its renewals have failed
		start()
		<-ctx.Done()
		time.Sleep(time.Second)
	}},
}

// A goroutine may come before another one in some runs, so the smallest of a few counts is the number.
func TestFlows(t *testing.T) {
	var found strings.Builder
	for _, flow := range flows {
		var least trace.Flow
		for run := range 5 {
			t.Run(flow.name, func(t *testing.T) {
				testkit.InFakeTime(t, 1, func(w *testkit.World) {
					w.Net.Tuned, w.TTL = true, 3*time.Second
					a, b := w.Process(), w.Process()
					flow.run(w, a, b, func() {
						synctest.Wait()
						trace.Start()
					})
					w.Settle()
					if f := trace.Stop(); run == 0 || f.Calls < least.Calls {
						least = f
					}
					w.Mini.Thaw()
				})
			})
		}
		t.Logf("%s:\n%s", flow.name, least.All)
		fmt.Fprintf(&found, "%-10s %9d %6d %6d\n", flow.name, least.Functions, least.Files, least.Calls)
	}
	if path := os.Getenv("FENCELOCK_FLOWS"); path != "" {
		require.NoError(t, os.WriteFile(path, []byte(found.String()), 0o644))
	}
}
