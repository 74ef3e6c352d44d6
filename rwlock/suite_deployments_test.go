package rwlock_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// deployments are where the suite runs beside fake time and single servers, on Redis and on Valkey.
var deployments = []struct {
	name  string
	start func(t *testing.T, binary string) testredis.Deployment
	opts  []rwlock.Option
}{
	{"Sentinel", startSentinel, nil},
	{"Cluster", startCluster, nil},
	{"TLS and the documented user", startLockedDown, nil},
	{"Sentinel, with a replica", startSentinel, []rwlock.Option{withAReplica}},
	{"Cluster, with a replica", startCluster, []rwlock.Option{withAReplica}},
}

var withAReplica = rwlock.WithReplicas(1, unhurried(1200*time.Millisecond)) // 3 s, the most, under the race detector

func startSentinel(t *testing.T, binary string) testredis.Deployment {
	return testredis.StartSentinel(t, binary)
}

func startCluster(t *testing.T, binary string) testredis.Deployment {
	return testredis.StartCluster(t, binary, 1)
}

func TestSuiteInEveryDeployment(t *testing.T) {
	t.Parallel() // most of the time is waiting
	for kind, find := range map[string]func(testing.TB) string{
		"Redis": redisBinary, "Valkey": testredis.Valkey,
	} {
		for _, d := range deployments {
			t.Run(kind+", "+d.name, func(t *testing.T) {
				t.Parallel()
				deployment := d.start(t, find(t))
				for _, c := range suite {
					t.Run(c.name, func(t *testing.T) { onGroup(t, deployment, c.test, d.opts...) })
				}
			})
		}
	}
}

// lockedDown is a server over TLS with the user of SECURITY.md.
type lockedDown struct{ *testredis.TLS }

func startLockedDown(t *testing.T, binary string) testredis.Deployment {
	s := lockedDown{testredis.StartTLS(t, binary)}
	for _, line := range [][]string{
		aclLine(t, aclOne), {"ACL", "SETUSER", "locks", "~team:blue:*", "&team:blue:c:*"}, // the suite's other prefix
	} {
		_, err := s.Command(line...)
		require.NoError(t, err)
	}
	t.Cleanup(func() {
		refused, err := s.Command("ACL", "LOG")
		require.NoError(t, err)
		require.Empty(t, refused, "refused commands")
	})
	return s
}

func (s lockedDown) Option() rueidis.ClientOption {
	option := s.TLS.Option()
	option.Username, option.Password = "locks", "secret"
	return option
}
