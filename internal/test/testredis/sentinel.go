//go:build unix

package testredis

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// MasterSet is the name under which the sentinels of a Sentinel know its master.
const MasterSet = "locks"

// Sentinel is a master with two replicas, and three sentinels that watch them. The sentinels consider a master failed
// after 10 s, so that a busy machine causes no failover. DownAfter changes that.
type Sentinel struct {
	t         testing.TB
	nodes     []*Server
	sentinels []*Server
}

const sentinels, sentinelQuorum = 3, 2

// StartSentinel starts the servers with the given arguments added, and returns when all sentinels know each other.
func StartSentinel(t testing.TB, binary string, args ...string) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t}
	for range 3 {
		s.nodes = append(s.nodes, newServer(t, binary, args...))
	}
	beginAll(t, s.nodes)
	for _, replica := range s.nodes[1:] {
		replica.ReplicaOf(s.nodes[0])
	}
	for range sentinels {
		s.sentinels = append(s.sentinels, newSentinel(t, binary, s.nodes[0]))
	}
	beginAll(t, s.sentinels)
	for _, sentinel := range s.sentinels { // by default they look at each other every one to ten seconds
		s.mustTell(sentinel, "DEBUG",
			"INFO-PERIOD", "200", "PING-PERIOD", "200", "PUBLISH-PERIOD", "200", "ASK-PERIOD", "100")
	}
	s.WaitReady()
	return s
}

func newSentinel(t testing.TB, binary string, master *Server) *Server {
	s := newServer(t, binary)
	s.config = filepath.Join(s.dir, "sentinel.conf")
	s.prepare = func() error {
		return os.WriteFile(s.config, fmt.Appendf(nil, "bind 127.0.0.1\nport %d\ndir %s\nlogfile server.log\n"+
			"sentinel monitor %[3]s 127.0.0.1 %[4]d %[5]d\n"+
			"sentinel down-after-milliseconds %[3]s 10000\n"+
			"sentinel failover-timeout %[3]s 10000\n"+
			"sentinel parallel-syncs %[3]s 2\n",
			s.port, s.dir, MasterSet, master.Port(), sentinelQuorum), 0o600)
	}
	return s
}

// Option returns what a client needs to find the master: all sentinels.
func (s *Sentinel) Option() rueidis.ClientOption {
	option := rueidis.ClientOption{Sentinel: rueidis.SentinelOption{MasterSet: MasterSet}}
	for _, sentinel := range s.sentinels {
		option.InitAddress = append(option.InitAddress, sentinel.Addr())
	}
	return option
}

// Nodes returns the master and its replicas, in the order in which they were started. The first was the initial master.
func (s *Sentinel) Nodes() []*Server { return s.nodes }

// Sentinels returns the sentinels.
func (s *Sentinel) Sentinels() []*Server { return s.sentinels }

// Master returns the server that the sentinels call the master.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	for _, sentinel := range s.sentinels {
		if master := s.masterBy(sentinel); master != nil {
			return master
		}
	}
	s.t.Fatal("testredis: no sentinel names a master")
	return nil
}

// Masters returns the master alone.
func (s *Sentinel) Masters() []*Server { return []*Server{s.Master()} }

// Command runs a command on the master.
func (s *Sentinel) Command(args ...string) (any, error) { return s.Master().Command(args...) }

// masterBy returns the master in the view of one sentinel, or nil if the sentinel does not answer.
func (s *Sentinel) masterBy(sentinel *Server) *Server {
	if !sentinel.answers() {
		return nil
	}
	reply, err := sentinel.Command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterSet)
	at, ok := reply.([]any)
	if err != nil || !ok || len(at) != 2 {
		return nil
	}
	for _, node := range s.nodes {
		if node.Addr() == net.JoinHostPort(at[0].(string), at[1].(string)) {
			return node
		}
	}
	return nil
}

// WaitReady returns when every running sentinel knows all other sentinels, the master and both replicas, and considers
// none of them down.
func (s *Sentinel) WaitReady() {
	s.t.Helper()
	for _, sentinel := range s.sentinels {
		if sentinel.answers() {
			await(s.t, sentinel.Addr()+" knows the whole group", func() bool { return s.knowsAll(sentinel) })
		}
	}
}

func (s *Sentinel) knowsAll(sentinel *Server) bool {
	reply, err := sentinel.Command("SENTINEL", "MASTER", MasterSet)
	if err != nil {
		return false
	}
	master := fields(reply)
	if master["flags"] != "master" || master["num-other-sentinels"] != fmt.Sprint(sentinels-1) {
		return false
	}
	reply, err = sentinel.Command("SENTINEL", "REPLICAS", MasterSet)
	replicas, ok := reply.([]any)
	if err != nil || !ok || len(replicas) != len(s.nodes)-1 {
		return false
	}
	for _, replica := range replicas {
		if state := fields(replica); state["flags"] != "slave" || state["master-link-status"] != "ok" {
			return false
		}
	}
	return true
}

// DownAfter sets the time without an answer after which the sentinels consider the master failed.
func (s *Sentinel) DownAfter(d time.Duration) {
	s.t.Helper()
	for _, sentinel := range s.sentinels {
		s.mustTell(sentinel, "SET", MasterSet, "DOWN-AFTER-MILLISECONDS", fmt.Sprint(d.Milliseconds()))
	}
}

// Failover makes the sentinels promote a replica, as an operator does, and returns the new master when all sentinels
// know it.
func (s *Sentinel) Failover() *Server {
	s.t.Helper()
	master := s.promote(s.Master())
	s.WaitReady()
	for _, node := range s.nodes {
		node.conn.close() // a change of its role ends all connections
	}
	return master
}

// KillMaster kills the master, has the sentinels promote a replica, and returns it when all sentinels know it. It does
// not wait for them to find out: a short DownAfter bounds how long a replica may have lost its master, too.
func (s *Sentinel) KillMaster() *Server {
	s.t.Helper()
	old := s.Master()
	old.Kill()
	return s.promote(old)
}

func (s *Sentinel) promote(old *Server) *Server {
	s.t.Helper()
	await(s.t, "a failover from "+old.Addr()+" comes to an end", func() bool { return s.failOver(s.sentinels[0], old) })
	return s.AwaitMaster(old)
}

// failOver makes a sentinel begin a failover unless one is in progress, and reports whether the old master has been
// replaced. The sentinel refuses if it has not checked the replicas recently, and gives up if a replica does not
// answer.
func (s *Sentinel) failOver(sentinel, old *Server) bool {
	reply, err := sentinel.Command("SENTINEL", "MASTER", MasterSet)
	master := s.masterBy(sentinel)
	if master != nil && master != old {
		return true
	}
	if err == nil && master == old && !strings.Contains(fields(reply)["flags"], "failover_in_progress") {
		_, _ = sentinel.Command("SENTINEL", "FAILOVER", MasterSet)
	}
	return false
}

// AwaitMaster returns the successor of the old master, when all running sentinels name it and it accepts writes.
func (s *Sentinel) AwaitMaster(old *Server) (master *Server) {
	s.t.Helper()
	await(s.t, "the sentinels agree on another master than "+old.Addr(), func() bool {
		master = nil
		for _, sentinel := range s.sentinels {
			if !sentinel.answers() {
				continue
			}
			named := s.masterBy(sentinel)
			if named == nil || named == old || master != nil && named != master {
				return false
			}
			master = named
		}
		return master != nil && master.role() == "master"
	})
	return master
}

func (s *Sentinel) mustTell(sentinel *Server, args ...string) {
	s.t.Helper()
	if _, err := sentinel.Command(append([]string{"SENTINEL"}, args...)...); err != nil {
		s.t.Fatalf("SENTINEL %s on %s: %v", strings.Join(args, " "), sentinel.Addr(), err)
	}
}

// fields reads a list of names and values in turn.
func fields(reply any) map[string]string {
	list, _ := reply.([]any)
	all := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].(string)
		all[name], _ = list[i+1].(string)
	}
	return all
}
