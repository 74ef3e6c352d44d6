//go:build unix

package testredis

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/process"
)

// haproxyConfig is the usual configuration in front of a group of servers: new connections lead to the one that says it
// is the master. Connections that stand stay with their server, because on-marked-down shutdown-sessions is missing.
const haproxyConfig = `global
  maxconn 256
defaults
  mode tcp
  timeout connect 4s
  timeout server 60s
  timeout client 60s
listen redis
  bind 127.0.0.1:%d
  option tcp-check
  tcp-check send PING\r\n
  tcp-check expect string +PONG
  tcp-check send info\ replication\r\n
  tcp-check expect string role:master
  tcp-check send QUIT\r\n
  tcp-check expect string +OK
`

// StartHAProxy starts HAProxy before the servers, and returns its address once it leads to a master. Without HAProxy
// the test is skipped; with CI=true it fails.
func StartHAProxy(t testing.TB, servers ...*Server) (addr string) {
	t.Helper()
	binary, err := exec.LookPath("haproxy")
	if err != nil {
		if binary, err = exec.LookPath("/usr/sbin/haproxy"); err != nil {
			missing(t, "no haproxy: install the Debian package haproxy")
		}
	}
	port, err := process.FindPort()
	if err != nil {
		t.Fatalf("testredis: haproxy: %v", err)
	}
	t.Cleanup(port.Close)
	var config strings.Builder
	fmt.Fprintf(&config, haproxyConfig, port.Number)
	for i, s := range servers {
		fmt.Fprintf(&config, "  server r%d %s check inter 100ms fall 1 rise 1\n", i, s.Addr())
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		t.Fatalf("testredis: haproxy: %v", err)
	}
	p, err := process.Start(exec.Command(binary, "-db", "-f", file))
	if err != nil {
		t.Fatalf("testredis: haproxy: %v", err)
	}
	t.Cleanup(p.Kill)
	addr = fmt.Sprintf("127.0.0.1:%d", port.Number)
	await(t, addr+" leads to a master", func() bool { return answersPing(addr) })
	return addr
}

func answersPing(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	reply := make([]byte, len("+PONG"))
	_, err = conn.Write([]byte("PING\r\n"))
	if err == nil {
		_, err = conn.Read(reply)
	}
	return err == nil && string(reply) == "+PONG"
}
