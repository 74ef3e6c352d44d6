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
	binary, port := proxyBinary(t, "haproxy"), proxyPort(t)
	var config strings.Builder
	fmt.Fprintf(&config, haproxyConfig, port)
	for i, s := range servers {
		fmt.Fprintf(&config, "  server r%d %s check inter 100ms fall 1 rise 1\n", i, s.Addr())
	}
	startProxy(t, config.String(), binary, "-db", "-f")
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	AwaitMaster(t, addr, len(servers))
	return addr
}

// AwaitMaster waits until an address leads all new connections to a master. Before its checks HAProxy takes so many
// servers for masters, and leads to one after the other.
func AwaitMaster(t testing.TB, addr string, servers int) {
	t.Helper()
	await(t, addr+" leads to a master alone", func() bool {
		for range 2 * servers {
			if !leadsToMaster(addr) {
				return false
			}
		}
		return true
	})
}

func leadsToMaster(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	reply := make([]byte, 1<<10)
	n := 0
	if _, err = conn.Write([]byte("ROLE\r\n")); err == nil {
		n, err = conn.Read(reply)
	}
	return err == nil && strings.Contains(string(reply[:n]), "\r\nmaster\r\n")
}

// StartTwemproxy starts twemproxy before a server, and returns its address. It knows few commands, and no HELLO.
func StartTwemproxy(t testing.TB, server *Server) (addr string) {
	t.Helper()
	binary, port := proxyBinary(t, "nutcracker"), proxyPort(t)
	startProxy(t, fmt.Sprintf("alpha:\n  listen: 127.0.0.1:%d\n  hash: fnv1a_64\n  distribution: ketama\n  redis: true\n"+
		"  servers:\n   - %s:1\n", port, server.Addr()), binary, "-s", fmt.Sprint(proxyPort(t)), "-c")
	addr = fmt.Sprintf("127.0.0.1:%d", port)
	await(t, addr+" accepts connections", func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return addr
}

func proxyBinary(t testing.TB, name string) string {
	t.Helper()
	for _, at := range []string{name, "/usr/sbin/" + name} {
		if binary, err := exec.LookPath(at); err == nil {
			return binary
		}
	}
	missing(t, "no "+name+": install the Debian package "+name)
	return ""
}

func proxyPort(t testing.TB) int {
	t.Helper()
	port, err := process.FindPort()
	if err != nil {
		t.Fatalf("testredis: %v", err)
	}
	t.Cleanup(port.Close)
	return port.Number
}

// startProxy starts a program whose last argument is the file of its configuration.
func startProxy(t testing.TB, config, binary string, args ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "proxy.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatalf("testredis: %s: %v", binary, err)
	}
	p, err := process.Start(exec.Command(binary, append(args, file)...))
	if err != nil {
		t.Fatalf("testredis: %s: %v", binary, err)
	}
	t.Cleanup(p.Kill)
}
