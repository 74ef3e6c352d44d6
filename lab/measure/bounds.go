package main

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/seed74116694/fencelock/lab/peer"
)

// bound is a promise about a figure of this library, or of a form of it, or about its ratio to the figure of another
// peer or another point.
type bound struct {
	what             string
	workload, column string
	point            int
	form             string // "" for the library's lease
	over             string // a peer at the same point, or "" for the figure itself
	overPoint        int    // if over is the bounded peer itself: its figure at another point
	least            bool   // the limit is a minimum, not a maximum
	limit            float64
}

// Verdict is the outcome of a bound.
type Verdict struct {
	What     string  `json:"what"`
	Bound    string  `json:"bound"`
	Measured float64 `json:"measured"`
	Met      bool    `json:"met"`
}

// level is the least ratio that counts as "level with".
const level = 0.95

func bounds() []bound {
	return slices.Concat(
		pairBounds(), quorumBounds(), throughputBounds(), handOffBounds(), leaseBounds(), failoverBounds(),
	)
}

func pairBounds() []bound {
	return []bound{
		{
			what: "server CPU of a pair, over floor: Lua", workload: "throughput", column: serverMicros, point: 64,
			over: peer.FloorLua, limit: 1.6,
		},
		{what: "commands inside scripts, a writer's pair", workload: "calls", column: insideWrite, limit: 7},
		{what: "commands inside scripts, a reader's pair", workload: "calls", column: insideRead, limit: 10},
		{what: "pair p50 on one CPU, over floor: SET NX", workload: "latency", column: p50, over: peer.FloorSet, limit: 1.5},
		{
			what: "the same, over a client in its default mode", workload: "latency", column: p50, form: peer.Automatic,
			over: peer.FloorSet, limit: 1.5,
		},
		{
			what: "pair p50 with 0.5 ms each way, over floor: SET NX", workload: "network", column: p50, point: 500,
			over: peer.FloorSet, limit: 1.05,
		},
		{
			what: "the same, released in the background", workload: "network", column: p50, point: 500,
			form: peer.Background, over: peer.FloorSet, limit: .55,
		},
	}
}

func quorumBounds() (all []bound) {
	for _, masters := range []int{3, 5} {
		name := "quorum of " + strconv.Itoa(masters)
		all = append(all, bound{
			what: name + ", pair p50 on one CPU, over floor: SET NX", workload: "quorum-latency", column: p50, point: masters,
			over: peer.FloorSet, limit: 1.8,
		}, bound{
			what: name + ", 64 goroutines, over floor: SET NX", workload: "quorum", column: perSecond, point: masters,
			over: peer.FloorSet, least: true, limit: .65,
		}, bound{
			what: name + ", 64 goroutines, over redsync (rueidis)", workload: "quorum", column: perSecond, point: masters,
			over: peer.RedsyncRueidis, least: true, limit: .8,
		})
	}
	return all
}

func handOffBounds() []bound {
	return []bound{
		{what: "commands inside scripts, a hand-off", workload: "calls", column: insideHandOff, limit: 16},
		{
			what: "hand-offs of one client, over floor: queue", workload: "hand-off", column: handOffs, point: 1,
			over: peer.FloorQueue, least: true, limit: .7,
		},
		{
			what: "hand-offs of 16 clients, over floor: queue", workload: "hand-off", column: handOffs, point: contenders,
			over: peer.FloorQueue, least: true, limit: .7,
		},
		{
			what: "hand-offs of 16 clients, over rueidislock", workload: "hand-off", column: handOffs, point: contenders,
			over: peer.Rueidislock, least: true, limit: 2,
		},
		{what: "64 idle waiters: commands a refresh", workload: "idle", column: perRefresh, limit: 8},
	}
}

func leaseBounds() []bound {
	return []bound{
		{
			what: "10,000 leases, TTL 5 s: server CPU over floor: batch", workload: "leases-5s", column: serverShare,
			point: 10000, over: peer.FloorBatch, limit: 3,
		},
		{
			what: "10,000 leases, TTL 5 s: client CPU over floor: batch", workload: "leases-5s", column: clientShare,
			point: 10000, over: peer.FloorBatch, limit: 4,
		},
		{what: "10,000 leases, TTL 2 s: lost", workload: "leases-2s", column: lost, point: 10000, limit: 0},
		{what: "bytes in Redis, a held write lock", workload: "bytes", column: bytesHeld, limit: 400},
		{what: "bytes in Redis, left after the release", workload: "bytes", column: bytesLeft, limit: 200},
		{what: "keys that never expire, after the release", workload: "bytes", column: forever, limit: 0},
		{what: "client heap, a lease", workload: "bytes", column: heapHeld, limit: 500},
	}
}

func throughputBounds() (all []bound) {
	for _, goroutines := range []int{64, 1024} {
		for _, other := range []struct {
			name  string
			limit float64
		}{
			{peer.FloorLua, .75},
			{peer.RedsyncGoRedis, 2},
			{peer.Redislock, 2},
			{peer.Rueidislock, 1},
			{peer.RedsyncRueidis, level},
		} {
			all = append(all, bound{
				what:     "distinct names, " + strconv.Itoa(goroutines) + " goroutines, over " + other.name,
				workload: "throughput", column: perSecond, point: goroutines, over: other.name, least: true, limit: other.limit,
			})
		}
	}
	return all
}

// judge leaves out the bounds without a measurement.
func checkBounds(measured []WorkloadResult) []Verdict {
	var all []Verdict
	for _, b := range bounds() {
		for i := range measured {
			if measured[i].Name != b.workload {
				continue
			}
			if v, ok := b.checkBounds(&measured[i]); ok {
				all = append(all, v)
			}
		}
	}
	return all
}

// of is the peer of the figure.
func (b bound) of() string { return cmp.Or(b.form, peer.Ours) }

func (b bound) checkBounds(w *WorkloadResult) (Verdict, bool) {
	ours := w.row(b.of(), b.point)
	if ours == nil {
		return Verdict{}, false
	}
	figure, ok := w.column(b.column).of(ours.Rounds)
	if b.over != "" {
		point := b.point
		if b.over == b.of() {
			point = b.overPoint
		}
		figure, ok = ratioOf(ours, w.row(b.over, point), b.column)
	}
	v := Verdict{What: b.what, Bound: "<= ", Measured: figure, Met: figure <= b.limit}
	if b.least {
		v.Bound, v.Met = ">= ", figure >= b.limit
	}
	v.Bound += strconv.FormatFloat(b.limit, 'g', -1, 64)
	return v, ok
}
