//go:build unix

package testredis_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// onEachKind runs a test on Redis and on Valkey.
func onEachKind(t *testing.T, test func(t *testing.T, binary string)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		t.Parallel() // a failover is mostly waiting
		testredis.Require(t)
		test(t, testredis.Binaries()[0])
	})
	t.Run("valkey", func(t *testing.T) {
		t.Parallel()
		test(t, testredis.Valkey(t))
	})
}

// connect returns a client of the deployment, over a link of its own.
func connect(t *testing.T, d testredis.Deployment) (*testredis.Link, rueidis.Client) {
	t.Helper()
	link := testredis.NewLink(t, d.Option())
	option := link.Option()
	option.DisableCache = true
	client, err := rueidis.NewClient(option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return link, client
}

// A failover that is given up, since no replica takes its promotion, is begun again.
func TestAFailoverThatIsGivenUp(t *testing.T) {
	onEachKind(t, func(t *testing.T, binary string) {
		s := testredis.StartSentinel(t, binary)
		old, sentinel := s.Master(), s.Sentinels()[0]
		_, err := sentinel.Command("SENTINEL", "SET", testredis.MasterSet, "FAILOVER-TIMEOUT", "1000")
		require.NoError(t, err)
		promotion := func(sign string) {
			for _, replica := range s.Nodes()[1:] {
				_, err := replica.Command("ACL", "SETUSER", "default", sign+"slaveof", sign+"replicaof")
				assert.NoError(t, err)
			}
		}
		refused := func() bool { // once for each failover
			for _, replica := range s.Nodes()[1:] {
				if log, _ := replica.Command("ACL", "LOG"); strings.Contains(fmt.Sprint(log), "slaveof") {
					return true
				}
			}
			return false
		}
		promotion("-")
		var operator sync.WaitGroup
		defer operator.Wait()
		operator.Go(func() {
			defer promotion("+")
			assert.Eventually(t, refused, 2*time.Minute, 5*time.Millisecond)
		})
		require.NotSame(t, old, s.Failover())
	})
}

func TestTLS(t *testing.T) {
	onEachKind(t, func(t *testing.T, binary string) {
		s := testredis.StartTLS(t, binary)
		link, client := connect(t, s)
		require.NoError(t, client.Do(t.Context(), set(client, "k", "v")).Error())
		got, err := s.Command("GET", "k")
		require.NoError(t, err)
		require.Equal(t, "v", got)
		require.Equal(t, 1, link.Calls("SET"), "the link sees what is said")

		direct, err := rueidis.NewClient(s.Option())
		require.NoError(t, err)
		defer direct.Close()
		require.NoError(t, direct.Do(t.Context(), set(direct, "k", "w")).Error())
		stranger := s.Option()
		stranger.TLSConfig.RootCAs = nil
		if client, err = rueidis.NewClient(stranger); client != nil {
			defer client.Close()
		}
		require.ErrorContains(t, err, "certificate")
	})
}

func TestValkeyIsNamedOrFound(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	named := filepath.Join(t.TempDir(), "valkey-server")
	t.Setenv("FENCELOCK_VALKEY", named)
	t.Setenv("CI", "true")
	require.NoError(t, os.WriteFile(named, nil, 0o700))
	require.Equal(t, named, testredis.Valkey(t))
	require.Contains(t, testredis.Binaries(), named)

	t.Setenv("FENCELOCK_VALKEY", "none")
	v := &verdict{TB: t}
	require.Empty(t, testredis.Valkey(v))
	require.Contains(t, v.skipped, "install-valkey")
	require.Empty(t, v.failed, "somebody has looked for it already")
}
