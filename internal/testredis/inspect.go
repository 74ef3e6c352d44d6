//go:build unix

package testredis

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
)

// CommandStat is what a server has counted of one command.
type CommandStat struct {
	Calls int
	Usec  int64 // server time, all calls together
}

// Command runs a command over a plain connection of the server's own, and returns string, int64, nil
// or []any of these. An error reply is an error; no answer within 5 s is one too.
func (s *Server) Command(args ...string) (any, error) {
	return s.conn.do(s.Addr(), commandLimit, args...)
}

// Info returns the fields of a section of INFO. A server that does not answer fails the test.
func (s *Server) Info(section string) map[string]string {
	s.t.Helper()
	fields, err := s.info(section)
	if err != nil {
		s.t.Errorf("INFO %s of %s: %v", section, s.Addr(), err)
	}
	return fields
}

// Stats returns the commands counted since ResetStats, by lower-case name ("evalsha",
// "config|get"). Commands that scripts run are among them; those of Info, Stats and ResetStats are not.
func (s *Server) Stats() map[string]CommandStat {
	s.t.Helper()
	own := int(s.infos.Load())
	stats := map[string]CommandStat{}
	for name, line := range s.Info("commandstats") {
		stats[strings.TrimPrefix(name, "cmdstat_")] = parseStat(line)
	}
	discount(stats, "info", own)
	discount(stats, "config|resetstat", 1)
	return stats
}

// ResetStats starts the counts of Stats anew.
func (s *Server) ResetStats() {
	s.t.Helper()
	if _, err := s.Command("CONFIG", "RESETSTAT"); err != nil {
		s.t.Errorf("CONFIG RESETSTAT of %s: %v", s.Addr(), err)
	}
	s.infos.Store(0)
}

// ReplicaOf makes the server a replica of another, and returns when it has caught up with it.
func (s *Server) ReplicaOf(of *Server) {
	s.t.Helper()
	host, port, _ := net.SplitHostPort(of.Addr())
	if _, err := s.Command("REPLICAOF", host, port); err != nil {
		s.t.Errorf("REPLICAOF on %s: %v", s.Addr(), err)
		return
	}
	await(s.t, s.Addr()+" has caught up with "+of.Addr(), func() bool {
		return s.Info("replication")["master_link_status"] == "up"
	})
}

// role returns what the server is, "" where it does not answer: a change of its role ends all connections.
func (s *Server) role() string {
	replication, err := s.info("replication")
	if err != nil {
		return ""
	}
	return replication["role"]
}

func (s *Server) info(section string) (map[string]string, error) {
	reply, err := s.Command("INFO", section)
	if err != nil {
		return nil, err
	}
	s.infos.Add(1)
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

// refusesInfo reports whether the server lives but wants a password first.
func refusesInfo(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOAUTH")
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
