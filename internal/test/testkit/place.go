package testkit

import (
	"path/filepath"
	"testing"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// Place is where a test over one master can run.
type Place struct {
	Name  string
	Enter func(t *testing.T, test func(w *World))
}

// Places returns fake time and the server binaries of testredis.Binaries. Each test that enters one has a server of its
// own. Without any binary there is a place that says what to install.
func Places(t *testing.T) []Place {
	t.Helper()
	all := []Place{{"fake time", func(t *testing.T, test func(w *World)) { InFakeTime(t, 1, test) }}}
	for _, binary := range testredis.Binaries() {
		all = append(all, Place{filepath.Base(binary), func(t *testing.T, test func(w *World)) {
			test(OnServers(t, testredis.StartBinary(t, binary)))
		}})
	}
	if len(all) == 1 {
		all = append(all, Place{"redis-server", func(t *testing.T, _ func(*World)) { testredis.Require(t) }})
	}
	return all
}
