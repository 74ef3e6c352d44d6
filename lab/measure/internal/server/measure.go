package server

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// info returns one field of a section of INFO.
func (s *Server) info(ctx context.Context, section, field string) (string, error) {
	text, err := s.admin.Do(ctx, s.admin.B().Info().Section(section).Build()).ToString()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("INFO %s has no field %s", section, field)
}

// Version returns the kind of the server and its version. Valkey also reports the version of Redis that it is
// compatible with.
func (s *Server) Version(ctx context.Context) (string, error) {
	if version, err := s.info(ctx, "server", "valkey_version"); err == nil {
		return "valkey-server " + version, nil
	}
	version, err := s.info(ctx, "server", "redis_version")
	return "redis-server " + version, err
}

// CPU returns the processor time that the process has used so far, of user and system together.
func (s *Server) CPU(ctx context.Context) (time.Duration, error) {
	var sum time.Duration
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		text, err := s.info(ctx, "cpu", field)
		if err != nil {
			return 0, err
		}
		seconds, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return 0, fmt.Errorf("INFO cpu: %s: %w", field, err)
		}
		sum += time.Duration(seconds * float64(time.Second))
	}
	return sum, nil
}

// Commands returns the number of commands run so far, including commands inside scripts.
func (s *Server) Commands(ctx context.Context) (int64, error) {
	text, err := s.info(ctx, "stats", "total_commands_processed")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// Flush deletes every key, but not the scripts.
func (s *Server) Flush(ctx context.Context) error {
	return s.admin.Do(ctx, s.admin.B().Flushall().Sync().Build()).Error()
}

// Footprint is the memory and the expiry of all keys of a server.
type Footprint struct {
	Keys    int
	Bytes   int64         // by MEMORY USAGE, each key's name and entry included
	Longest time.Duration // until the last of them has expired
	Forever int           // keys that do not expire
}

// Used returns the bytes that the server has allocated: the keys, the tables that lead to them, and everything else it
// needs.
func (s *Server) Used(ctx context.Context) (int64, error) {
	text, err := s.info(ctx, "memory", "used_memory")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(text, 10, 64)
}

// Footprint inspects every key. The keys must not change during the call.
func (s *Server) Footprint(ctx context.Context) (Footprint, error) {
	var f Footprint
	for cursor := uint64(0); ; {
		page, err := s.admin.Do(ctx, s.admin.B().Scan().Cursor(cursor).Count(1000).Build()).AsScanEntry()
		if err != nil {
			return f, err
		}
		if err := s.measure(ctx, page.Elements, &f); err != nil {
			return f, err
		}
		if cursor = page.Cursor; cursor == 0 {
			return f, nil
		}
	}
}

func (s *Server) measure(ctx context.Context, keys []string, f *Footprint) error {
	commands := make(rueidis.Commands, 0, 2*len(keys))
	for _, key := range keys {
		commands = append(commands,
			s.admin.B().MemoryUsage().Key(key).Samples(0).Build(), s.admin.B().Pttl().Key(key).Build())
	}
	answers := s.admin.DoMulti(ctx, commands...)
	for i := 0; i < len(answers); i += 2 {
		bytes, err := answers[i].AsInt64()
		if err != nil {
			return err
		}
		left, err := answers[i+1].AsInt64()
		if err != nil {
			return err
		}
		f.Keys++
		f.Bytes += bytes
		if left < 0 {
			f.Forever++
		}
		f.Longest = max(f.Longest, time.Duration(left)*time.Millisecond)
	}
	return nil
}

// Calls are numbers of commands by their origin.
type Calls struct {
	Sent   int // by clients; the PINGs that keep connections alive are left out
	Inside int // inside scripts
}

// Monitor counts every command by MONITOR, which slows the server down: nothing may be timed during a count.
type Monitor struct {
	server *Server
	conn   net.Conn
	lines  *bufio.Reader
	marks  int
}

// monitorLimit bounds the wait for a line of MONITOR.
const monitorLimit = 20 * time.Second

// Monitor begins to count.
func (s *Server) Monitor(ctx context.Context) (*Monitor, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return nil, err
	}
	m := &Monitor{server: s, conn: conn, lines: bufio.NewReaderSize(conn, 1<<20)}
	if _, err := conn.Write([]byte("MONITOR\r\n")); err != nil {
		return nil, m.fail(err)
	}
	if line, err := m.line(); err != nil || line != "+OK" {
		return nil, m.fail(fmt.Errorf("MONITOR: %q, %v", line, err))
	}
	return m, nil
}

func (m *Monitor) fail(err error) error {
	_ = m.conn.Close() // the cause is known
	return err
}

func (m *Monitor) line() (string, error) {
	if err := m.conn.SetReadDeadline(time.Now().Add(monitorLimit)); err != nil {
		return "", err
	}
	line, err := m.lines.ReadString('\n')
	return strings.TrimSpace(line), err
}

// Count returns the commands since Monitor or the last Count. It sends a mark of its own and stops reading there.
func (m *Monitor) Count(ctx context.Context) (Calls, error) {
	m.marks++
	mark := fmt.Sprintf("mark-%p-%d", m, m.marks)
	admin := m.server.admin
	if err := admin.Do(ctx, admin.B().Echo().Message(mark).Build()).Error(); err != nil {
		return Calls{}, err
	}
	var c Calls
	for {
		line, err := m.line()
		if err != nil {
			return c, fmt.Errorf("MONITOR: %w", err)
		}
		if strings.HasSuffix(line, `"`+mark+`"`) {
			return c, nil
		}
		c.add(line)
	}
}

// add counts one line, such as +1700000000.123456 [0 127.0.0.1:1234] "GET" "a" or +1700000000.123456 [0 lua] "get" "a".
func (c *Calls) add(line string) {
	_, rest, _ := strings.Cut(line, "[")
	source, command, found := strings.Cut(rest, "] ")
	switch {
	case !found:
	case strings.HasSuffix(source, " lua"):
		c.Inside++
	case !strings.EqualFold(command, `"PING"`):
		c.Sent++
	}
}

// Close ends the counting.
func (m *Monitor) Close() error { return m.conn.Close() }
