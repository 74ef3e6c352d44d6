package redisguard_test

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
)

// suite is run on every kind of server; each test starts with an empty one.
var suite = []struct {
	name string
	test func(t *testing.T, client rueidis.Client)
}{
	{"TypedAccesses", testTypedAccesses},
	{"Claim", testClaim},
	{"Derive", testDerive},
	{"TokensAreExact", testTokensAreExact},
	{"RegistersStayWithoutATTL", testRegistersStayWithoutATTL},
	{"MixedTTLs", testMixedTTLs},
	{"RegistersHoldTokens", testRegistersHoldTokens},
	{"RegisterRisesWithAFailingScript", testRegisterRisesWithAFailingScript},
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
			runSuite(t, testredis.StartBinary(t, binary).Client(t))
		})
	}
}

func TestCluster(t *testing.T) { runSuite(t, startCluster(t)) }

func runSuite(t *testing.T, client rueidis.Client) {
	for _, s := range suite {
		for _, node := range client.Nodes() {
			require.NoError(t, node.Do(context.Background(), node.B().Flushall().Build()).Error())
		}
		t.Run(s.name, func(t *testing.T) { s.test(t, client) })
	}
}
