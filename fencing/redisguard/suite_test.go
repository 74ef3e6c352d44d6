package redisguard_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// suite is run on every kind of server; each test starts with an empty one.
var suite = []struct {
	name string
	test func(t *testing.T, client rueidis.Client)
}{
	{"TypedAccesses", testTypedAccesses},
	{"DoAllOfManyFences", testDoAllOfManyFences},
	{"TokensAreExact", testTokensAreExact},
	{"MixedTTLs", testMixedTTLs},
	{"RegistersHoldTokens", testRegistersHoldTokens},
	{"RegisterRisesWithAFailingScript", testRegisterRisesWithAFailingScript},
	{"AccessOfAnotherDatabase", testAccessOfAnotherDatabase},
	{"WrongTypes", testWrongTypes},
	{"EndedContext", testEndedContext},
	{"RegistersAreBesideTheData", testRegistersAreBesideTheData},
	{"AgreesWithRegisters", testAgreesWithRegisters},
	{"ScriptReplies", testScriptReplies},
	{"ScriptErrors", testScriptErrors},
	{"ScriptManyArguments", testScriptManyArguments},
}

func TestEmbedded(t *testing.T) {
	for _, s := range suite {
		t.Run(s.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { s.test(t, testredis.NewMini(t).Client(t)) })
		})
	}
}

func TestRealServer(t *testing.T) {
	testredis.Require(t)
	for _, binary := range testredis.Binaries() {
		t.Run(filepath.Base(binary), func(t *testing.T) {
			option := testredis.StartBinary(t, binary).Option()
			option.ConnWriteTimeout = time.Minute // a busy machine may stand still for seconds
			client, err := rueidis.NewClient(option)
			require.NoError(t, err)
			t.Cleanup(client.Close)
			runSuite(t, client)
		})
	}
}

func TestCluster(t *testing.T) {
	testredis.Require(t)
	nodes := testredis.StartCluster(t, testredis.Binaries()[0], 0).Nodes()
	runSuite(t, clusterClient(t, nodes))
	t.Run("DocumentedACL", func(t *testing.T) {
		lines := documentedACL(t)
		for _, node := range nodes {
			for _, line := range lines {
				command(t, node, line...)
			}
		}
		require.NoError(t, everyMethod(t, as(t, nodes[0], lines[0][2], false)))
	})
}

func runSuite(t *testing.T, client rueidis.Client) {
	for _, s := range suite {
		for _, node := range client.Nodes() {
			require.NoError(t, node.Do(context.Background(), node.B().Flushall().Build()).Error())
		}
		t.Run(s.name, func(t *testing.T) { s.test(t, client) })
	}
}

func TestMain(m *testing.M) {
	scratch.Use("fencelock-redisguard")
	goleak.VerifyTestMain(m, testredis.LeftByClusters()...)
}

func read(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Read}
}

func write(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Write}
}

func newGuard(t testing.TB, client rueidis.Client, opts ...redisguard.Option) *redisguard.Guard {
	t.Helper()
	g, err := redisguard.New(client, opts...)
	require.NoError(t, err)
	return g
}

func clusterClient(t *testing.T, nodes []*testredis.Server) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress:  []string{nodes[0].Addr()},
		DisableCache: true,
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func command(t *testing.T, node *testredis.Server, args ...string) any {
	t.Helper()
	reply, err := node.Command(args...)
	require.NoError(t, err)
	return reply
}
