//go:build unix

package testredis

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Authority issues certificates, each for one address of this machine. No server of it has a certificate that is good
// for another one.
type Authority struct {
	t           testing.TB
	dir         string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// NewAuthority returns one. Only Linux has addresses 127.0.0.x without further ado: elsewhere the test is skipped.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("this system has no address 127.0.0.2")
	}
	return newAuthority(t)
}

func newAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	a.key, a.certificate = a.issue("ca", &x509.Certificate{
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
	return a
}

// File returns the file with the certificate to trust.
func (a *Authority) File() string { return filepath.Join(a.dir, "ca.crt") }

func (a *Authority) issue(name string, c *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	must := func(err error) {
		if err != nil {
			a.t.Fatalf("testredis: certificate of %s: %v", name, err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	c.Subject = pkix.Name{CommonName: name}
	c.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62))
	must(err)
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	parent, signer := a.certificate, a.key
	if parent == nil {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	must(writePEM(filepath.Join(a.dir, name+".crt"), "CERTIFICATE", der))
	must(writePEM(filepath.Join(a.dir, name+".key"), "PRIVATE KEY", secret))
	issued, err := x509.ParseCertificate(der)
	must(err)
	return key, issued
}

func writePEM(path, kind string, content []byte) error {
	var text bytes.Buffer
	if err := pem.Encode(&text, &pem.Block{Type: kind, Bytes: content}); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o600)
}

// server returns a server that speaks TLS at that address. Its plain port is for the administrator.
func (a *Authority) server(binary, host string) *TLS {
	a.issue(host, &x509.Certificate{
		IPAddresses: []net.IP{net.ParseIP(host)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	roots := x509.NewCertPool()
	roots.AddCert(a.certificate)
	return &TLS{Server: newServer(a.t, binary), host: host, roots: roots}
}

// options are those of a server's TLS, as lines of a configuration file.
func (a *Authority) options(s *TLS) []string {
	file := func(ending string) string { return filepath.Join(a.dir, s.host+ending) }
	return []string{
		"bind", strings.Join(slices.Compact([]string{"127.0.0.1", s.host}), " "),
		"tls-port", strconv.Itoa(s.port), "tls-cert-file", file(".crt"),
		"tls-key-file", file(".key"), "tls-ca-cert-file", a.File(), "tls-auth-clients", "no", "tls-replication", "yes",
	}
}

// Start starts a server with the given arguments added.
func (a *Authority) Start(binary, host string, args ...string) *TLS {
	a.t.Helper()
	s := a.server(binary, host)
	s.prepare = func() (err error) {
		s.port, err = s.reservePort()
		s.args = nil
		for i, word := range a.options(s) {
			if i%2 == 0 {
				word = "--" + word
			}
			s.args = append(s.args, word)
		}
		s.args = append(s.args, args...)
		return err
	}
	s.begin()
	return s
}

// StartSentinel starts one sentinel of that master.
func (a *Authority) StartSentinel(binary, host string, master *TLS) *TLS {
	a.t.Helper()
	s := a.server(binary, host)
	s.Server.config = filepath.Join(s.dir, "sentinel.conf")
	s.prepare = func() (err error) {
		s.port, err = s.reservePort()
		text := fmt.Sprintf("port %d\ndir %s\nlogfile server.log\nprotected-mode no\n", s.Server.port, s.dir)
		options := a.options(s)
		for i := 0; i < len(options); i += 2 {
			text += options[i] + " " + options[i+1] + "\n"
		}
		text += fmt.Sprintf("sentinel monitor %s %s %d 1\n", MasterSet, master.host, master.port)
		if err == nil {
			err = os.WriteFile(s.Server.config, []byte(text), 0o600)
		}
		return err
	}
	s.begin()
	return s
}

// StartCluster starts a Cluster of three masters without replicas.
func (a *Authority) StartCluster(binary string, hosts [3]string) (nodes []*TLS) {
	a.t.Helper()
	slots := []int{0, 5461, 10923, 16384}
	for i, host := range hosts {
		n := a.Start(binary, host, "--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-announce-ip", host)
		a.tell(n, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(slots[i]), strconv.Itoa(slots[i+1]-1))
		if nodes = append(nodes, n); i > 0 {
			a.tell(n, "CLUSTER", "MEET", nodes[0].host, strconv.Itoa(nodes[0].port))
		}
	}
	for _, n := range nodes {
		await(a.t, n.TLSAddr()+" knows the whole Cluster", func() bool {
			info, err := n.Command("CLUSTER", "SHARDS")
			shards, ok := info.([]any)
			return err == nil && ok && len(shards) == len(nodes)
		})
	}
	return nodes
}

func (a *Authority) tell(s *TLS, args ...string) {
	a.t.Helper()
	if _, err := s.Command(args...); err != nil {
		a.t.Fatalf("testredis: %s: %v: %v", s.TLSAddr(), args, err)
	}
}
