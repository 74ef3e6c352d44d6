//go:build unix

package testredis

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// TLS is a real server that speaks TLS on a separate port, with a certificate that only its own clients know. Addr and
// Command use its plain port, for the administrator.
type TLS struct {
	*Server
	host   string
	port   int
	config *tls.Config
}

// StartTLS starts a server with the given arguments added.
func StartTLS(t testing.TB, binary string, args ...string) *TLS {
	t.Helper()
	s := &TLS{Server: newServer(t, binary), host: "127.0.0.1"}
	certificate, key := filepath.Join(s.dir, "server.crt"), filepath.Join(s.dir, "server.key")
	s.config = writeCertificate(t, certificate, key)
	s.prepare = func() (err error) {
		s.port, err = s.reservePort()
		s.args = append([]string{
			"--tls-port", strconv.Itoa(s.port), "--tls-cert-file", certificate, "--tls-key-file", key,
			"--tls-ca-cert-file", certificate, "--tls-auth-clients", "no",
		}, args...)
		return err
	}
	s.begin()
	return s
}

// Option returns what a client needs to find the server over TLS.
func (s *TLS) Option() rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{s.TLSAddr()}, ForceSingleClient: true, TLSConfig: s.config.Clone()}
}

// TLSAddr returns the host:port at which the server speaks TLS.
func (s *TLS) TLSAddr() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

// writeCertificate makes a self-signed certificate for 127.0.0.1, and returns the configuration with which a client
// accepts it.
func writeCertificate(t testing.TB, certificateFile, keyFile string) *tls.Config {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatalf("certificate: %v", err)
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "testredis"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	must(err)
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	must(writePEM(certificateFile, "CERTIFICATE", certificate))
	must(writePEM(keyFile, "PRIVATE KEY", secret))
	parsed, err := x509.ParseCertificate(certificate)
	must(err)
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
}

func writePEM(path, kind string, content []byte) error {
	var text bytes.Buffer
	if err := pem.Encode(&text, &pem.Block{Type: kind, Bytes: content}); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o600)
}
