//go:build unix

package testredis

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// CommandStat is the server's statistics of one command.
type CommandStat struct {
	Calls int
	Usec  int64 // server time, all calls together
}

// console runs administrative commands that no lock uses.
type console struct {
	t     testing.TB
	port  int
	conn  commandConn
	infos atomic.Int64 // own INFO commands since ResetStats
}

// Addr returns the host:port of the server. It stays the same over Restart.
func (c *console) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)) }

// Command runs a command over a plain connection of the server's own, and returns string, int64, nil
// or []any of these. An error reply is an error; no answer within 30 s is one too.
func (c *console) Command(args ...string) (any, error) {
	return c.conn.do(c.Addr(), commandLimit, args...)
}

// Info returns the fields of a section of INFO. A server that does not answer fails the test.
func (c *console) Info(section string) map[string]string {
	c.t.Helper()
	fields, err := c.info(section)
	if err != nil {
		c.t.Errorf("INFO %s of %s: %v", section, c.Addr(), err)
	}
	return fields
}

// Stats returns the commands counted since ResetStats, by lower-case name ("evalsha", "config|get"). It includes the
// commands that scripts run, and excludes the commands of Info, Stats and ResetStats.
func (c *console) Stats() map[string]CommandStat {
	c.t.Helper()
	own := int(c.infos.Load())
	stats := map[string]CommandStat{}
	for name, line := range c.Info("commandstats") {
		stats[strings.TrimPrefix(name, "cmdstat_")] = parseStat(line)
	}
	discount(stats, "info", own)
	discount(stats, "config|resetstat", 1)
	return stats
}

// ResetStats resets the counts of Stats.
func (c *console) ResetStats() {
	c.t.Helper()
	if _, err := c.Command("CONFIG", "RESETSTAT"); err != nil {
		c.t.Errorf("CONFIG RESETSTAT of %s: %v", c.Addr(), err)
	}
	c.infos.Store(0)
}

// ReplicaOf makes the server a replica of another, and returns when it has caught up with it.
func (c *console) ReplicaOf(of *Server) {
	c.t.Helper()
	host, port, _ := net.SplitHostPort(of.Addr())
	if _, err := c.Command("REPLICAOF", host, port); err != nil {
		c.t.Errorf("REPLICAOF on %s: %v", c.Addr(), err)
		return
	}
	await(c.t, c.Addr()+" has caught up with "+of.Addr(), func() bool {
		return c.Info("replication")["master_link_status"] == "up"
	})
}

// UntilConfirmed returns when every replica has confirmed all writes of the server. After a Thaw that takes a while.
func (c *console) UntilConfirmed() {
	c.t.Helper()
	await(c.t, "the replicas of "+c.Addr()+" have confirmed its writes", func() bool {
		replication := c.Info("replication")
		for i := 0; ; i++ {
			switch replica, is := replication[fmt.Sprint("slave", i)]; {
			case !is:
				return i > 0
			case !strings.Contains(replica, ",offset="+replication["master_repl_offset"]+","):
				return false
			}
		}
	})
}

// role returns the role of the server, or "" if it does not answer: a change of its role ends all connections.
func (c *console) role() string {
	replication, err := c.info("replication")
	if err != nil {
		return ""
	}
	return replication["role"]
}

func (c *console) info(section string) (map[string]string, error) {
	reply, err := c.Command("INFO", section)
	if err != nil {
		return nil, err
	}
	c.infos.Add(1)
	body, ok := reply.(string)
	if !ok {
		return nil, fmt.Errorf("INFO answered %T", reply)
	}
	fields := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(body))
	for lines.Scan() {
		if name, val, ok := strings.Cut(lines.Text(), ":"); ok {
			fields[name] = val
		}
	}
	return fields, lines.Err()
}

// parseStat reads "calls=1,usec=2,...".
func parseStat(line string) CommandStat {
	fields := maps.Collect(func(yield func(string, string) bool) {
		for part := range strings.SplitSeq(line, ",") {
			if name, val, ok := strings.Cut(part, "="); ok && !yield(name, val) {
				return
			}
		}
	})
	calls, _ := strconv.Atoi(fields["calls"])
	usec, _ := strconv.ParseInt(fields["usec"], 10, 64)
	return CommandStat{Calls: calls, Usec: usec}
}

func discount(stats map[string]CommandStat, name string, calls int) {
	stat := stats[name]
	if stat.Calls -= calls; stat.Calls > 0 {
		stats[name] = stat
		return
	}
	delete(stats, name)
}

// commandLimit bounds a command, so that a command to a frozen server fails instead of hanging.
const commandLimit = 30 * time.Second

// commandConn runs single commands over a plain connection, which it opens when needed.
type commandConn struct {
	mu   sync.Mutex
	conn net.Conn
}

// do runs a command and returns string, int64, nil or []any of these; an error reply is an error.
// A command is never sent twice: after a failure the next one opens another connection.
func (c *commandConn) do(addr string, limit time.Duration, args ...string) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	msg, err := c.exchange(addr, limit, encode(args))
	if err != nil {
		c.drop()
		return nil, err
	}
	return value(msg)
}

func (c *commandConn) exchange(addr string, limit time.Duration, request []byte) ([]byte, error) {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", addr, limit)
		if err != nil {
			return nil, err
		}
		c.conn = conn
	}
	if err := c.conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	stream := respStream{w: c.conn, r: c.conn}
	return stream.exchange(request)
}

func (c *commandConn) drop() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

func (c *commandConn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}
