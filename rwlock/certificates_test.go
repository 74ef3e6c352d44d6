package rwlock_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// TestACertificateForEachServer opens URLs of servers of which each has a certificate for its own address alone, in a
// process whose system trusts the authority. A library cannot add to what the system trusts after its first use.
func TestACertificateForEachServer(t *testing.T) {
	const role = "FENCELOCK_CERTIFICATES"
	if urls := os.Getenv(role); urls != "" {
		for url := range strings.FieldsSeq(urls) {
			opened(t, url)
		}
		return
	}
	binary := redisBinary(t)
	ca := testredis.NewAuthority(t)
	nodes := ca.StartCluster(binary, [3]string{"127.0.0.11", "127.0.0.12", "127.0.0.13"})
	master := ca.Start(binary, "127.0.0.21")
	sentinel := ca.StartSentinel(binary, "127.0.0.22", master)
	quorum := master.TLSAddr() + "," + ca.Start(binary, "127.0.0.23").TLSAddr() + "," +
		ca.Start(binary, "127.0.0.24").TLSAddr()
	_, port, _ := net.SplitHostPort(master.TLSAddr())
	for name, url := range map[string]string{
		"one server":                "rediss://" + master.TLSAddr(),
		"a Cluster":                 "rediss://" + nodes[0].TLSAddr() + "?addr=" + nodes[1].TLSAddr(),
		"a Cluster by one node":     "rediss+cluster://" + nodes[2].TLSAddr(),
		"Sentinel":                  "rediss://" + sentinel.TLSAddr() + "?master_set=" + testredis.MasterSet,
		"Sentinel, by another form": "rediss-sentinel://" + sentinel.TLSAddr() + "/" + testredis.MasterSet,
		"a quorum, as redlock.Open": "rediss://" + quorum,
		"one server, as for valkey": "valkeys://" + master.TLSAddr(),
		"not to be checked":         "rediss://127.0.0.1:" + port + "?skip_verify",
	} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestACertificateForEachServer$")
		child.Env = append(os.Environ(), role+"="+url, "SSL_CERT_FILE="+ca.File(), "SSL_CERT_DIR="+t.TempDir())
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s: %s", name, out)
	}
}

func opened(t *testing.T, url string) {
	var locker *rwlock.Locker
	if strings.Contains(url, ",") {
		opts := []rwlock.Option{rwlock.WithPrefix("quorum"), rwlock.WithTTL(2 * time.Second)}
		locker = expect.NoError(redlock.Open([]string{url}, opts...)).In(t, url)
	} else {
		locker = expect.NoError(rwlock.Open(url, testredis.Patience())).In(t, url)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	for _, name := range strings.Fields("a b c d e f g h i j k l") { // in all parts of a Cluster
		require.NoError(t, locker.Do(ctx, name, func(context.Context) error { return nil }))
	}
	require.NoError(t, locker.Close())
}
