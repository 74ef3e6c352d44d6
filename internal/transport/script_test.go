package transport_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/scripts"
)

// Each locker has scripts of its own, but not their text.
func TestScriptsShareTheirText(t *testing.T) {
	const sets = 100
	heap := func() int64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	text := int64(0)
	for _, source := range scripts.All() {
		text += int64(len(source))
	}
	var all []*transport.Script
	before := heap()
	for range sets {
		for name := range scripts.All() {
			all = append(all, transport.NewScript(name, "the same salt in all of them"))
		}
	}
	require.Less(t, heap()-before, sets*text/4)
	runtime.KeepAlive(all)
}
