package redisguard_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func testTypedAccesses(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	const resource, key = "orders/42", "order:{42}:state"

	_, err := g.Get(ctx, read(resource, 9), key)
	require.True(t, rueidis.IsRedisNil(err), "%v", err)
	require.ErrorIs(t, g.Set(ctx, write(resource, 8), key, "old", 0), fencing.ErrStale, "a newer reader has read")
	require.NoError(t, g.Set(ctx, write(resource, 10), key, "paid", 0))
	require.NoError(t, g.Set(ctx, write(resource, 10), key, "packed", 0), "a holder writes more than once")

	_, err = g.Get(ctx, read(resource, 9), key)
	require.Equal(t, &fencing.StaleError{Resource: resource, Got: 9, Seen: 10}, err)
	for _, token := range []fencing.Token{12, 11} {
		value := expect.NoError(g.Get(ctx, read(resource, token), key)).In(t, "readers never fence each other off")
		require.Equal(t, "packed", value)
	}

	require.ErrorIs(t, g.Del(ctx, write(resource, 11), key), fencing.ErrStale)
	require.NoError(t, g.Del(ctx, write(resource, 13), key))
	require.NoError(t, g.Del(ctx, write(resource, 13), key))
	require.NoError(t, g.HSet(ctx, write(resource, 13), key, map[string]string{"a": "1", "b": "2"}))
	require.ErrorIs(t, g.HSet(ctx, write(resource, 12), key, map[string]string{"a": "9"}), fencing.ErrStale)
	fields := expect.NoError(client.Do(ctx, client.B().Hgetall().Key(key).Build()).AsStrMap()).In(t)
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, fields)

	require.NoError(t, g.Set(ctx, write("another lock", 1), key, "x", 0), "each resource has its own registers")
}

func testTokensAreExact(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	for i, newest := range []fencing.Token{2, 100_000_000_000_001, 1_763_712_345_678_901, fencing.MaxToken} {
		key := fmt.Sprint("k", i)
		require.NoError(t, g.Set(ctx, write("a", newest), key, "new", 0))
		err := g.Set(ctx, write("a", newest-1), key, "old", 0)
		require.Equal(t, &fencing.StaleError{Resource: "a", Got: newest - 1, Seen: newest}, err)
		require.NoError(t, g.Claim(ctx, read("a", newest), key))
		require.Equal(t, fencing.Registers{MaxRead: newest, MaxWrite: newest}, expect.NoError(g.Seen(ctx, "a", key)).In(t))
	}
}

func TestRefusedBeforeAnythingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		client := mini.Client(t)
		g, ctx := newGuard(t, client), context.Background()
		mini.ResetCalls()
		script := redisguard.NewScript(`return 1`)
		do := func(f fencing.Fence, script *redisguard.Script, keys ...string) error {
			return second(g.Do(ctx, f, script, keys, nil))
		}
		all := func(fences ...fencing.Fence) error { return second(g.DoAll(ctx, fences, script, []string{"k"}, nil)) }
		a, b := write("a", 1), read("b", 1)
		for name, tt := range map[string]struct {
			err  error
			want error
			text string
		}{
			"no token":        {g.Set(ctx, write("a", 0), "k", "v", 0), fencing.ErrMissing, `"a"`},
			"no resource":     {g.Set(ctx, write("", 1), "k", "v", 0), fencing.ErrMalformed, "resource"},
			"reader sets":     {g.Set(ctx, b, "k", "v", 0), fencing.ErrMissing, "read lock"},
			"reader hsets":    {g.HSet(ctx, b, "k", map[string]string{"f": "v"}), fencing.ErrMissing, "read lock"},
			"reader deletes":  {g.Del(ctx, b, "k"), fencing.ErrMissing, "read lock"},
			"no fields":       {g.HSet(ctx, a, "k", nil), fencing.ErrMalformed, "fields"},
			"negative TTL":    {g.Set(ctx, a, "k", "v", -time.Second), fencing.ErrMalformed, "TTL"},
			"TTL below 1 ms":  {g.Derive(ctx, b, "k", "v", time.Microsecond), fencing.ErrMalformed, "TTL"},
			"empty key":       {g.Claim(ctx, a, ""), fencing.ErrMalformed, "empty"},
			"brace, no tag":   {g.Claim(ctx, a, "a}b"), fencing.ErrMalformed, "no hash tag"},
			"empty tag":       {g.Claim(ctx, a, "{}b"), fencing.ErrMalformed, "no hash tag"},
			"no keys":         {do(a, script), fencing.ErrMalformed, "at least one"},
			"another tag":     {do(a, script, "{k}1", "{l}1"), fencing.ErrMalformed, `"l"`},
			"seen, empty key": {second(g.Seen(ctx, "a", "")), fencing.ErrMalformed, "empty"},
			"no fences":       {all(), fencing.ErrMalformed, "at least one"},
			"twice":           {all(a, b, a), fencing.ErrMalformed, `"a"`},
			"in both modes":   {all(b, write("b", 1)), fencing.ErrMalformed, `"b"`},
			"one of no token": {all(a, read("c", 0)), fencing.ErrMissing, `"c"`},
			"one of no mode":  {all(a, fencing.Fence{Resource: "c", Token: 1}), fencing.ErrMalformed, "mode"},
			"nil script":      {do(a, nil, "k"), nil, "make it with NewScript"},
			"zero script":     {do(a, new(redisguard.Script), "k"), nil, "make it with NewScript"},
		} {
			require.True(t, tt.want == nil || errors.Is(tt.err, tt.want), "%s: %v", name, tt.err)
			require.ErrorContains(t, tt.err, tt.text, name)
		}
		zero := new(redisguard.Guard)
		for name, err := range map[string]error{
			"Do": second(zero.Do(ctx, a, script, []string{"k"}, nil)), "Seen": second(zero.Seen(ctx, "a", "k")),
			"DoAll": second(zero.DoAll(ctx, []fencing.Fence{a}, script, []string{"k"}, nil)),
			"Claim": zero.Claim(ctx, a, "k"), "Derive": zero.Derive(ctx, a, "k", "v", 0),
		} {
			require.ErrorContains(t, err, "make it with New", name)
		}
		for text, err := range map[string]error{
			"client is nil": second(redisguard.New(nil)),
			"option is nil": second(redisguard.New(client, nil)),
			"1ms":           second(redisguard.New(client, redisguard.WithRegisterTTL(time.Millisecond))),
		} {
			require.ErrorContains(t, err, text)
		}
		require.Empty(t, mini.AllCalls())
	})
}

func second[T any](_ T, err error) error { return err }

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, ctx := testredis.NewMini(t).Client(t), context.Background()
		g := newGuard(t, client, redisguard.WithRegisterTTL(time.Hour))
		require.NoError(t, g.Set(ctx, write("a", 10), "k", "v", time.Minute))
		time.Sleep(59 * time.Minute)
		_, err := g.Get(ctx, read("a", 10), "k")
		require.True(t, rueidis.IsRedisNil(err), "the value had a minute")
		require.ErrorIs(t, g.Claim(ctx, write("a", 9), "k"), fencing.ErrStale, "the registers have an hour")
		time.Sleep(59 * time.Minute)
		require.ErrorIs(t, g.Claim(ctx, write("a", 9), "k"), fencing.ErrStale, "an accepted access renews it")
		time.Sleep(2 * time.Minute)
		require.NoError(t, g.Claim(ctx, write("a", 9), "k"), "a refused one does not")
	})
}

func testWrongTypes(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	require.NoError(t, g.HSet(ctx, write("a", 9), "hash", map[string]string{"f": "v"}))
	_, err := g.Get(ctx, read("a", 10), "hash")
	require.ErrorContains(t, err, "WRONGTYPE")
	require.ErrorContains(t, err, `"hash"`)
	require.ErrorIs(t, g.Claim(ctx, write("a", 9), "hash"), fencing.ErrStale, "the register stays raised")

	set := client.B().Set().Key("fencing:{k}:a").Value("x").Build()
	require.NoError(t, client.Do(ctx, set).Error())
	require.ErrorContains(t, g.Claim(ctx, write("a", 9), "k"), "WRONGTYPE")
	_, err = g.Seen(ctx, "a", "k")
	require.ErrorContains(t, err, "WRONGTYPE")
}

func testEndedContext(t *testing.T, client rueidis.Client) {
	ctx, lose := context.WithCancelCause(context.Background())
	lose(&fencing.LostError{Resource: "a", Token: 9, Reason: "expired"})
	g := newGuard(t, client)
	_, seen := g.Seen(ctx, "a", "k")
	for _, err := range []error{g.Claim(ctx, write("a", 9), "k"), seen} {
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, fencing.ErrLost, "why it has ended")
		require.NotErrorIs(t, err, fencing.ErrStale)
	}
}

func TestOneCallAnAccess(t *testing.T) {
	server := testredis.Start(t)
	g, ctx := newGuard(t, server.Client(t)), context.Background()
	access := func() {
		require.NoError(t, g.Set(ctx, write("a", 9), "k", "v", 0))
		require.ErrorIs(t, g.Set(ctx, write("a", 8), "k", "v", 0), fencing.ErrStale)
		expect.NoError(g.Get(ctx, read("a", 9), "k")).In(t)
	}
	access() // loads the scripts
	server.ResetStats()
	access()
	require.Equal(t, 3, server.Stats()["evalsha"].Calls)
	require.Zero(t, server.Stats()["eval"].Calls)
}

// One tag has one register of a resource, whatever the names.
func testRegistersAreBesideTheData(t *testing.T, client rueidis.Client) {
	g, ctx := newGuard(t, client), context.Background()
	for i := range 40 { // some for every master
		for key, tag := range map[string]string{
			fmt.Sprint("plain", i): fmt.Sprint("plain", i), fmt.Sprintf("x{tag%d}y", i): fmt.Sprint("tag", i),
			fmt.Sprintf("{open%d", i): fmt.Sprintf("{open%d", i),
		} {
			resource := fmt.Sprintf("any {name} %d", i)
			require.NoError(t, g.Set(ctx, write(resource, 7), key, "new", 0))
			require.ErrorIs(t, g.Set(ctx, write(resource, 6), key, "old", 0), fencing.ErrStale)
			require.Equal(t, "new", expect.NoError(g.Get(ctx, read(resource, 8), key)).In(t))
			seen := expect.NoError(g.Seen(ctx, resource, "other{"+tag+"}")).In(t)
			require.Equal(t, fencing.Registers{MaxRead: 8, MaxWrite: 7}, seen)
		}
	}
}

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
	{"ScriptConditions", testScriptConditions},
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
			client := expect.NoError(rueidis.NewClient(option)).In(t)
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
	return expect.NoError(redisguard.New(client, opts...)).In(t)
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
	return expect.NoError(node.Command(args...)).In(t)
}
