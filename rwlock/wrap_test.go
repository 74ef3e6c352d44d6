package rwlock_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// hooked is a client as those of rueidishook are: it sees each command.
type hooked struct {
	rueidis.Client
	seen *seen
}

type seen struct {
	mu    sync.Mutex
	names []string
}

func (s *seen) add(commands ...rueidis.Completed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range commands {
		s.names = append(s.names, c.Commands()[0])
	}
}

func (s *seen) count(names ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.names {
		if slices.Contains(names, name) {
			n++
		}
	}
	return n
}

func (h *hooked) Do(ctx context.Context, c rueidis.Completed) rueidis.RedisResult {
	h.seen.add(c)
	return h.Client.Do(ctx, c)
}

func (h *hooked) DoMulti(ctx context.Context, c ...rueidis.Completed) []rueidis.RedisResult {
	h.seen.add(c...)
	return h.Client.DoMulti(ctx, c...)
}

func (h *hooked) Nodes() map[string]rueidis.Client {
	nodes := h.Client.Nodes()
	for addr, node := range nodes {
		nodes[addr] = &hooked{node, h.seen}
	}
	return nodes
}

// Over a quorum a client that does not know its connections pays an INFO for each script. A wrapped one does not.
func TestWrapKeepsWhatIsKnownOfTheConnection(t *testing.T) {
	servers := []*testredis.Server{testredis.Start(t), testredis.Start(t), testredis.Start(t)}
	scripts, infos := map[string]int{}, map[string]int{}
	for name, wrap := range map[string]func(rueidis.Client, func(rueidis.Client) rueidis.Client) (rueidis.Client, error){
		"wrapped": rwlock.Wrap,
		"hidden": func(c rueidis.Client, with func(rueidis.Client) rueidis.Client) (rueidis.Client, error) {
			return with(c), nil
		},
	} {
		seen := &seen{}
		var addrs []string
		for _, server := range servers {
			addrs = append(addrs, server.Addr())
		}
		clients, err := redlock.Dial(addrs, rueidis.ClientOption{})
		require.NoError(t, err)
		for i, client := range clients {
			clients[i], err = wrap(client, func(c rueidis.Client) rueidis.Client { return &hooked{c, seen} })
			require.NoError(t, err)
		}
		locker, err := redlock.New(clients, testredis.Patience())
		require.NoError(t, err)
		pair := func() { require.NoError(t, locker.Do(t.Context(), "n", func(context.Context) error { return nil })) }
		pair()
		servers[0].ResetStats()
		for range 10 {
			pair()
		}
		scripts[name], infos[name] = seen.count("EVALSHA", "EVAL"), servers[0].Stats()["info"].Calls
		require.NoError(t, locker.Close())
		for _, client := range clients {
			client.Close()
		}
	}
	require.Greater(t, scripts["wrapped"], 30, "the hooks see the scripts")
	require.Less(t, infos["wrapped"], 10)
	require.GreaterOrEqual(t, infos["hidden"], 10)
}

func TestWrapRefuses(t *testing.T) {
	client, err := rwlock.Dial(miniredis.RunT(t).Addr(), rueidis.ClientOption{})
	require.NoError(t, err)
	defer client.Close()
	same := func(c rueidis.Client) rueidis.Client { return c }
	for name, f := range map[string]func() (rueidis.Client, error){
		"no client":     func() (rueidis.Client, error) { return rwlock.Wrap(nil, same) },
		"not from Dial": func() (rueidis.Client, error) { return rwlock.Wrap(&hooked{client, &seen{}}, same) },
		"no function":   func() (rueidis.Client, error) { return rwlock.Wrap(client, nil) },
		"a function of none": func() (rueidis.Client, error) {
			return rwlock.Wrap(client, func(rueidis.Client) rueidis.Client { return nil })
		},
	} {
		wrapped, err := f()
		require.Nil(t, wrapped, name)
		require.ErrorIs(t, err, rwlock.ErrOption, name)
	}
	require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error(), "it stays as it was")

	// Wrapped twice, and closed by either end.
	once, err := rwlock.Wrap(client, same)
	require.NoError(t, err)
	twice, err := rwlock.Wrap(once, same)
	require.NoError(t, err)
	locker, err := rwlock.New(twice)
	require.NoError(t, err)
	_, err = locker.Lock(t.Context(), "n")
	require.NoError(t, err)
	client.Close()
	_, err = locker.Lock(t.Context(), "m")
	require.ErrorIs(t, err, rwlock.ErrNoQuorum, "a closed client ends the waiting")
	require.NoError(t, locker.Close())
	twice.Close()
}
