//go:build unix

package testredis

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"strconv"
	"testing"

	"github.com/redis/rueidis"
)

// TLS is a real server that speaks TLS on a separate port, with a certificate that only its own clients know. Addr and
// Command use its plain port, for the administrator.
type TLS struct {
	*Server
	host  string
	port  int
	roots *x509.CertPool
}

// StartTLS starts a server with the given arguments added.
func StartTLS(t testing.TB, binary string, args ...string) *TLS {
	t.Helper()
	return newAuthority(t).Start(binary, "127.0.0.1", args...)
}

// Option returns what a client needs to find the server over TLS.
func (s *TLS) Option() rueidis.ClientOption {
	config := &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12}
	return rueidis.ClientOption{InitAddress: []string{s.TLSAddr()}, ForceSingleClient: true, TLSConfig: config}
}

// TLSAddr returns the host:port at which the server speaks TLS.
func (s *TLS) TLSAddr() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }
