package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/harness"
	"github.com/seed74116694/fencelock/lab/chaos/check"
	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/lab/peer"
)

// scene is a deployment and the faults under which the libraries are compared.
type scene struct {
	name    string
	masters int
	durable bool // a server that restarts has its data
	faults  []string
}

// pauses are faults under which the servers keep their data. Half of them stop a worker.
var pauses = append(slices.Repeat([]string{"pause-worker"}, 12),
	"freeze-server", "restart", "kill-clients", "kill-worker",
	"cut", "refuse", "blackhole", "half-open", "hold", "delay", "slow", "late")

func scenes() []scene {
	return []scene{
		{name: "one server", masters: 1, durable: true, faults: pauses},
		{name: "three masters", masters: 3, durable: true, faults: pauses},
		{
			name: "one server, FLUSHALL", masters: 1, durable: true,
			faults: append(slices.Clone(pauses), slices.Repeat([]string{"flush-single"}, 4)...),
		},
		{
			name: "three masters, one at a time loses its data", masters: 3,
			faults: append(slices.Clone(pauses), slices.Repeat([]string{"restart", "flush"}, 2)...),
		},
	}
}

// compare runs the workload with each library in each scene that it supports, and prints what was lost.
func compare(ctx context.Context, cfg config, out io.Writer) error {
	if cfg.peers == "all" {
		cfg.peers = strings.ReplaceAll(libraryNames(), ", ", ",")
	}
	var libraries []peer.Library
	for name := range strings.SplitSeq(cfg.peers, ",") {
		lib, err := libraryNamed(name)
		if err != nil {
			return err
		}
		libraries = append(libraries, lib)
	}
	if cfg.seed == 0 {
		cfg.seed = rand.Uint64()
	}
	cfg.deployment, cfg.gap = servers, 2*time.Second
	cfg.processes, cfg.workers, cfg.names = 8, 2, 8
	var tallies []tally
	for i, s := range scenes() {
		for _, lib := range libraries {
			if s.masters > 1 && !lib.Quorum || i > 0 && lib.Name == noLock {
				continue
			}
			one := tally{library: lib.Name, scene: s.name}
			err := harness.Run(ctx, func(t testing.TB) error { return one.run(t, cfg, s) })
			if err != nil {
				return fmt.Errorf("seed %d, %s, %s: %w", cfg.seed, s.name, lib.Name, err)
			}
			if len(tallies) == 0 {
				writeConditions(out, cfg, one.server)
			}
			if len(tallies) == 0 || tallies[len(tallies)-1].scene != s.name {
				fmt.Fprintf(out, "\n%s\n%s\n", s.name, tallyHead)
			}
			fmt.Fprintln(out, one)
			tallies = append(tallies, one)
		}
	}
	if cfg.plot != "" {
		if err := plotLosses(cfg.plot, tallies); err != nil {
			return err
		}
	}
	return broken(tallies)
}

// broken returns an error if a promise of this library was broken: a guard with its tokens loses nothing, and where the
// servers keep their data no two holders trust the lock at once.
func broken(tallies []tally) error {
	for _, t := range tallies {
		if t.guards[history.Fenced].lost > 0 || t.guards[history.Fenced].acknowledged > 0 && t.promised > 0 {
			return fmt.Errorf("%w: %s, %s: %d lost with a guard, two holders %d times", errViolated, t.library, t.scene,
				t.guards[history.Fenced].lost, t.promised)
		}
	}
	return nil
}

func writeConditions(out io.Writer, cfg config, server string) {
	fmt.Fprintf(out, "%s, %s on %s/%s, %d cores, %s\n", time.Now().UTC().Format(time.DateOnly), runtime.Version(),
		runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), server)
	fmt.Fprintf(out, "seed %d, %v for each row, a fault every %v on average\n", cfg.seed, cfg.duration, cfg.gap/2)
	fmt.Fprintf(out, "TTL %v, %d processes of %d goroutines, %d locks\n", peerTTL, cfg.processes, cfg.workers, cfg.names)
	peer.WriteVersions(out)
}

// tally is the result of one library in one scene.
type tally struct {
	library, scene, server string

	guards     map[string]guardTally
	overlapped int           // writes of a section that began before an earlier one of the lock had written
	told       int           // pairs of holders to which the library said at one moment that they had the lock
	promised   int           // the same, where this library promises that there are none
	givenUp    int           // sections that did not write because the library said that the lock was lost
	longest    time.Duration // that a goroutine waited for a lock, retries included
	faults     int           // of the nemesis
}

// guardTally is what became of the writes to the registers with one guard.
type guardTally struct{ acknowledged, lost, refused int }

// run compares one library.
func (y *tally) run(t testing.TB, cfg config, s scene) error {
	cfg.library, cfg.masters, cfg.durable = y.library, s.masters, s.durable
	a, h := newArena(t, cfg), &history.History{}
	if err := a.fight(s.faults, h); err != nil {
		return err
	}
	h.Sort()
	server := a.nodes[0]
	version := server.process.Info("server")
	y.server = filepath.Base(server.Binary()) + " " + cmp.Or(version["valkey_version"], version["redis_version"])
	y.count(h)
	return nil
}

// count counts what was lost, by the history.
func (y *tally) count(h *history.History) {
	y.guards = map[string]guardTally{}
	wrote := map[string]int64{}                 // when the sections so far have written, by lock
	read := map[registerKey]map[uint64]uint64{} // the value before each that was written
	last := map[registerKey]history.Access{}    // that was written
	for _, a := range h.Accesses {
		guard, key := y.guards[a.Guard], registerKey{a.Name, a.Guard}
		switch {
		case a.Refused:
			guard.refused++
		case a.Wrote != 0:
			guard.acknowledged++
			if read[key] == nil {
				read[key] = map[uint64]uint64{}
			}
			if read[key][a.Wrote] = a.Read; a.Ended > last[key].Ended {
				last[key] = a
			}
			if a.Guard == "" && a.Called < wrote[a.Name] {
				y.overlapped++
			}
			wrote[a.Name] = max(wrote[a.Name], a.Ended)
		}
		y.guards[a.Guard] = guard
	}
	for key, before := range read {
		guard := y.guards[key.guard]
		guard.lost += len(before)
		for value := last[key].Wrote; value != 0; value = before[value] { // the chain that leads to the last one
			guard.lost--
		}
		y.guards[key.guard] = guard
	}
	for _, f := range h.Faults {
		if f.Kind != history.Still {
			y.faults++
		}
	}
	told, _ := check.Exclusion(&history.History{Spans: h.Spans})
	promised, _ := check.Exclusion(h)
	y.told, y.promised = len(told), len(promised)
	for _, s := range h.Spans {
		y.longest = max(y.longest, time.Duration(s.Granted-s.Called))
		if s.End == "lost" {
			y.givenUp++
		}
	}
	for _, f := range h.Failures {
		y.longest = max(y.longest, time.Duration(f.Ended-f.Called))
	}
}

const (
	tallyRow  = "%-11v %6v %12v %6v %10v %8v %7v %12v %15v %15v"
	noneToAsk = "-"
)

var tallyHead = fmt.Sprintf(tallyRow, "library", "faults", "acknowledged", "lost", "overlapped", "two told", "gave up",
	"longest wait", "compared: lost", "fenced: lost")

// String is a row of the table.
func (y tally) String() string {
	guarded := func(guard string) string {
		g, ok := y.guards[guard]
		if !ok {
			return noneToAsk
		}
		return fmt.Sprintf("%d, %d refused", g.lost, g.refused)
	}
	plain := y.guards[""]
	return fmt.Sprintf(tallyRow, y.library, y.faults, plain.acknowledged, plain.lost, y.overlapped, y.told, y.givenUp,
		y.longest.Round(10*time.Millisecond), guarded(history.Compared), guarded(history.Fenced))
}
