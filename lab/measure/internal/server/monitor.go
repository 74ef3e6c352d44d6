package server

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// Calls are numbers of commands by their origin.
type Calls struct {
	Sent   int // by clients; the PINGs that keep connections alive are left out
	Inside int // inside scripts
}

// Monitor counts every command by MONITOR, which slows the server down: nothing may be timed during a count.
type Monitor struct {
	server *testredis.Server
	conn   net.Conn
	lines  *bufio.Reader
	marks  int
}

// monitorLimit bounds the wait for a line of MONITOR.
const monitorLimit = 20 * time.Second

// StartMonitor begins to count.
func StartMonitor(s *testredis.Server) (*Monitor, error) {
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return nil, err
	}
	m := &Monitor{server: s, conn: conn, lines: bufio.NewReaderSize(conn, 1<<20)}
	_, err = conn.Write([]byte("MONITOR\r\n"))
	if line, failed := m.line(); err != nil || failed != nil || line != "+OK" {
		_ = conn.Close() // the cause is known
		return nil, fmt.Errorf("MONITOR: %q, %v, %v", line, err, failed)
	}
	return m, nil
}

func (m *Monitor) line() (string, error) {
	if err := m.conn.SetReadDeadline(time.Now().Add(monitorLimit)); err != nil {
		return "", err
	}
	line, err := m.lines.ReadString('\n')
	return strings.TrimSpace(line), err
}

// Count returns the commands since StartMonitor or the last Count. It sends a mark of its own and stops reading there.
func (m *Monitor) Count() (c Calls, err error) {
	m.marks++
	mark := fmt.Sprintf("mark-%p-%d", m, m.marks)
	if _, err := m.server.Command("ECHO", mark); err != nil {
		return c, err
	}
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
