package peer

import (
	"fmt"
	"io"
	"runtime/debug"
	"slices"
)

// Names that workloads refer to.
const (
	Ours            = "fencelock"
	Background      = "fencelock, background"
	RedsyncGoRedis  = "redsync (go-redis)"
	RedsyncRueidis  = "redsync (rueidis)"
	Redislock       = "redislock"
	Rueidislock     = "rueidislock"
	RueidislockAsIs = "rueidislock, defaults"
	FloorSet        = "floor: SET NX"
	FloorLua        = "floor: Lua"
	FloorQueue      = "floor: queue"
	FloorBatch      = "floor: batch"
)

// AsIs returns rueidislock with its default options, except for one key a lock and no invalidations of its own writes.
// With the options of Libraries it is faster if goroutines do not contend, and slower if they do.
func AsIs() Library {
	return Library{
		Name: RueidislockAsIs, Queues: true, Keeps: true, Key: rueidislockKey, Open: openRueidislockAsIs,
	}
}

// Libraries returns all of them, the floors first.
func Libraries() []Library {
	return []Library{
		{Name: FloorSet, Floor: true, Quorum: true, Modes: true, Open: openFloorSet},
		{Name: FloorLua, Floor: true, Quorum: true, Modes: true, Open: openFloorLua},
		{Name: FloorQueue, Floor: true, Queues: true, Modes: true, Open: openFloorQueue},
		{Name: FloorBatch, Floor: true, Keeps: true, Modes: true, Open: openFloorBatch},
		{Name: Ours, Quorum: true, Queues: true, Keeps: true, Key: ourKey, Open: openOurs},
		{Name: RedsyncRueidis, Quorum: true, Keeps: true, Modes: true, Open: openRedsyncRueidis},
		{Name: RedsyncGoRedis, Quorum: true, Keeps: true, Open: openRedsyncGoRedis},
		{Name: Redislock, Keeps: true, Open: openRedislock},
		{Name: Rueidislock, Queues: true, Keeps: true, Open: openRueidislock},
	}
}

// Named returns the libraries of these names, in the order of Libraries.
func Named(names ...string) []Library {
	return Select(func(l Library) bool {
		for _, name := range names {
			if l.Name == name {
				return true
			}
		}
		return false
	})
}

// InAutomaticMode returns the library over clients of rueidis in their automatic mode.
func (l Library) InAutomaticMode() Library {
	dialled := l.Open
	l.Open = func(o Options) (Peer, error) {
		o.Automatic = true
		return dialled(o)
	}
	return l
}

// Select returns the libraries that satisfy has.
func Select(has func(Library) bool) []Library {
	var chosen []Library
	for _, l := range Libraries() {
		if has(l) {
			chosen = append(chosen, l)
		}
	}
	return chosen
}

// measured are the modules with versions that belong to a figure.
var measured = []string{
	"github.com/redis/rueidis", "github.com/redis/rueidis/rueidiscompat", "github.com/redis/go-redis/v9",
	"github.com/go-redsync/redsync/v4", "github.com/bsm/redislock",
}

// WriteVersions writes the versions of the libraries and their clients that this program is built with.
func WriteVersions(out io.Writer) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	for _, m := range info.Deps { // sorted
		if m.Replace != nil {
			m.Version = m.Replace.Version
		}
		if slices.Contains(measured, m.Path) {
			fmt.Fprintf(out, "  %s %s\n", m.Path, m.Version)
		}
	}
}
