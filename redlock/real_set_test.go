package redlock_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// realSet is the masters of one quorum, real servers.
type realSet struct {
	t       *testing.T
	servers []*testredis.Server
}

func newRealSet(t *testing.T, masters int, args ...string) *realSet {
	t.Helper()
	s := &realSet{t: t}
	for range masters {
		s.servers = append(s.servers, testredis.Start(t, args...))
	}
	return s
}

// realPeer is a process whose link to each master can be broken.
type realPeer struct {
	*rwlock.Locker
	proxies []*testredis.Proxy
}

// peer starts a process. change, which may be nil, changes the options of its clients.
func (s *realSet) peer(change func(*rueidis.ClientOption), opts ...rwlock.Option) *realPeer {
	s.t.Helper()
	return s.start(rueidis.NewClient, change, opts...)
}

// dialled starts a process whose clients are those of rwlock.Dial.
func (s *realSet) dialled(opts ...rwlock.Option) *realPeer {
	s.t.Helper()
	dial := func(o rueidis.ClientOption) (rueidis.Client, error) { return rwlock.Dial("", o) }
	return s.start(dial, nil, opts...)
}

func (s *realSet) start(
	dial func(rueidis.ClientOption) (rueidis.Client, error), change func(*rueidis.ClientOption), opts ...rwlock.Option,
) *realPeer {
	s.t.Helper()
	p := &realPeer{}
	var clients []rueidis.Client
	for _, server := range s.servers {
		proxy := testredis.NewProxy(s.t, server.Addr())
		option := proxy.Option()
		if change != nil {
			change(&option)
		}
		client, err := dial(option)
		require.NoError(s.t, err)
		s.t.Cleanup(client.Close)
		p.proxies, clients = append(p.proxies, proxy), append(clients, client)
	}
	locker, err := redlock.New(clients, append(opts, testredis.Patience())...)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = locker.Close() })
	p.Locker = locker
	return p
}

// use takes, renews and gives back locks, so that connections stand and scripts are known. A busy machine may need more
// than one try.
func (p *realPeer) use(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		require.Eventually(t, func() bool {
			lease, err := p.Lock(soon(t, 30*time.Second), name)
			if err != nil {
				return false
			}
			renewed := lease.Renew(t.Context())
			return lease.Release(t.Context()) == nil && renewed == nil
		}, time.Minute, time.Millisecond, name)
	}
}

// misses cuts the process off from one master.
func (p *realPeer) misses(master int) {
	p.proxies[master].Refuse()
	p.proxies[master].Cut()
}

func command(t *testing.T, server *testredis.Server, args ...string) any {
	t.Helper()
	reply, err := server.Command(args...)
	require.NoError(t, err, "%s", strings.Join(args, " "))
	return reply
}

// awaitReplica returns when a replica has what the server has been told.
func awaitReplica(t *testing.T, server *testredis.Server) {
	t.Helper()
	has := func() bool {
		n, err := server.Command("WAIT", "1", "1000")
		return err == nil && n.(int64) > 0
	}
	require.Eventually(t, has, 2*time.Minute, time.Millisecond)
}

// nobodyBeside tries to take a lock for as long as a lease of it stands, which must fail. A machine so slow that the
// lease ends before shows nothing, and passes.
func nobodyBeside(t *testing.T, lease *rwlock.Lease, others ...*realPeer) {
	t.Helper()
	tries := 0
	for ; lease.Err() == nil; tries++ {
		for _, p := range others {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			next, err := p.TryLock(ctx, lease.Name())
			cancel()
			if err != nil {
				continue
			}
			require.Error(t, lease.Err(), "tokens %v and %v are held at once", lease.Token(), next.Token())
			require.Greater(t, next.Token(), lease.Token())
			require.NoError(t, next.Release(t.Context()))
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("%d rounds of attempts while the lease stood", tries)
}

// follow makes a server the replica of another, or of nobody, without waiting for it to catch up.
func follow(t *testing.T, server, of *testredis.Server) {
	t.Helper()
	if of == nil {
		command(t, server, "REPLICAOF", "NO", "ONE")
		return
	}
	host, port, err := net.SplitHostPort(of.Addr())
	require.NoError(t, err)
	command(t, server, "REPLICAOF", host, port)
}

// journal is a log that is read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// option has a locker write its log here.
func (j *journal) option() rwlock.Option {
	return rwlock.WithLogger(slog.New(slog.NewTextHandler(j, nil)))
}
