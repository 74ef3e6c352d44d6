package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/scriptfuzz"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// embeddedServer is a server in the process of the arena. It compares each script call with the model of the scripts,
// and keeps a record of the holds that it grants.
type embeddedServer struct {
	*testredis.Mini
	*holds
	trace   *scriptfuzz.Trace
	link    *testredis.Proxy
	forgets atomic.Bool // its next restart empties it

	mu     sync.Mutex
	differ []error
}

// embed makes the masters of an embedded deployment.
func (d *deployment) embed(t testing.TB, cfg config) {
	d.empty = cfg.masters > 1
	for i := range cfg.masters {
		s := newEmbeddedServer(t, i)
		d.nodes = append(d.nodes, &node{host: s, master: i, clock: s})
		d.masters = append(d.masters, endpoint{Addrs: []string{s.Addr()}})
	}
}

func newEmbeddedServer(t testing.TB, master int) *embeddedServer {
	s := &embeddedServer{Mini: testredis.NewMini(t)}
	s.holds = newHolds(master)
	s.Mini.Skew(0) // miniredis looks at all keys whenever the clock has moved
	s.NewProcess()
	s.trace = s.Trace(func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.differ = append(s.differ, err)
	})
	s.trace.Watch(s.holds.change)
	s.link = s.Listen()
	return s
}

// watchScripts records when a script had to wait for those before it, until ctx ends.
func (s *embeddedServer) watchScripts(ctx context.Context, record func(history.Fault)) {
	for ctx.Err() == nil {
		asked := now()
		_, _ = s.Mini.Command("EVAL", "return 1", "0")
		if at := now(); at-asked > int64(stillness) {
			record(history.Fault{
				Kind: history.Still, Target: s.Addr(), From: asked, Until: at, Masters: []int{s.holds.master},
			})
		}
		time.Sleep(watchInterval)
	}
}

// Addr returns the host:port where it listens.
func (s *embeddedServer) Addr() string { return s.link.Addr() }

// Binary names it.
func (s *embeddedServer) Binary() string { return embedded }

// Skew sets its clock.
func (s *embeddedServer) Skew(d time.Duration) {
	s.holds.skewed(d)
	s.Mini.Skew(d)
}

// Kill makes it a server whose process has ended.
func (s *embeddedServer) Kill() { s.Stop() }

// Restart starts it again, as another process.
func (s *embeddedServer) Restart() {
	if s.forgets.Swap(false) {
		_, _ = s.Mini.Command("FLUSHALL")
	}
	s.FlushScripts()
	s.NewProcess()
	s.Recover()
}

// errUnsupported is the answer to commands that no embedded server has.
var errUnsupported = errors.New("ERR not a command of an embedded server")

// Command runs a command, as clients of a real server have it.
func (s *embeddedServer) Command(args ...string) (any, error) {
	switch text := strings.Join(args, " "); {
	case strings.HasPrefix(text, "CLIENT KILL TYPE normal"):
		s.link.Cut()
		return "OK", nil
	case text == "CLIENT KILL TYPE pubsub": // its clients use one connection for everything
		s.link.CutIf(func() bool { return rand.IntN(2) == 0 })
		return "OK", nil
	case text == "REPLICAOF NO ONE":
		s.Promote()
		return "OK", nil
	case args[0] == "REPLICAOF":
		s.Demote()
		return "OK", nil
	case args[0] == "CLIENT", args[0] == "CONFIG", args[0] == "SAVE":
		return nil, fmt.Errorf("%w: %s", errUnsupported, text)
	}
	return s.Mini.Command(args...)
}

// differences returns where the scripts differed from the model.
func (s *embeddedServer) differences() []error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.differ
}

// differs reports whether a script call has differed from the model.
func (d *deployment) differs() bool {
	return slices.ContainsFunc(d.embeddedServers(), func(s *embeddedServer) bool { return len(s.differences()) > 0 })
}

// embeddedServers returns those of the deployment.
func (d *deployment) embeddedServers() (all []*embeddedServer) {
	for _, n := range d.nodes {
		if s, ok := n.host.(*embeddedServer); ok {
			all = append(all, s)
		}
	}
	return all
}

// granted returns the holds that the masters granted.
func (d *deployment) granted() (all []history.Hold) {
	for _, s := range d.embeddedServers() {
		all = append(all, s.holds.take()...)
	}
	return all
}
