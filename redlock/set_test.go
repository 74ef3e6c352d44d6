package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// set is the masters of one quorum in fake time.
type set struct {
	t     *testing.T
	minis []*testredis.Mini
}

func newSet(t *testing.T, masters int) *set {
	s := &set{t: t}
	for i := range masters {
		mini := testredis.NewMini(t)
		mini.SetAddr(fmt.Sprintf("mini-%d:6379", i))
		s.minis = append(s.minis, mini)
	}
	return s
}

// peer is one process: a locker with a link of its own to each master.
type peer struct {
	*rwlock.Locker
	links   []*testredis.Link
	clients []rueidis.Client
}

// link prepares a process whose messages take as long as latency says; nil takes no time. Its locker is yet to be
// started.
func (s *set) link(latency func() time.Duration) *peer {
	p := &peer{}
	for _, m := range s.minis {
		link := m.NewLink()
		if latency != nil {
			link.DelayFunc(testredis.Both, latency)
		}
		p.links = append(p.links, link)
		p.clients = append(p.clients, link.Client(s.t))
	}
	return p
}

// dial prepares a process whose clients are those of rwlock.Dial, which the locker can watch. Messages take d each way;
// change, which may be nil, changes the clients' options.
func (s *set) dial(d time.Duration, change func(*rueidis.ClientOption)) *peer {
	p := &peer{}
	for _, m := range s.minis {
		link := m.NewLink()
		link.Delay(d)
		option := link.Option()
		if change != nil {
			change(&option)
		}
		client, err := rwlock.Dial("", option)
		require.NoError(s.t, err)
		s.t.Cleanup(client.Close)
		p.links, p.clients = append(p.links, link), append(p.clients, client)
	}
	return p
}

// start gives the process its locker, which is closed at the latest when the test ends.
func (p *peer) start(t *testing.T, opts ...rwlock.Option) {
	locker, err := redlock.New(p.clients, opts...)
	require.NoError(t, err)
	p.Locker = locker
	t.Cleanup(func() { require.NoError(t, locker.Close()) })
}

// peer starts a process whose messages take d each way.
func (s *set) peer(d time.Duration, opts ...rwlock.Option) *peer {
	p := s.link(func() time.Duration { return d })
	p.start(s.t, opts...)
	return p
}

// warm lets the process connect, and the masters learn the scripts that an acquisition and its release need.
func (p *peer) warm(t *testing.T) {
	lease, err := p.Lock(t.Context(), "warm-up")
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
}

// cutOff takes a process's links to some of the masters away from it.
func cutOff(links []*testredis.Link) {
	for _, link := range links {
		link.Refuse()
		link.Cut()
	}
}

// reset forgets the commands counted so far.
func (s *set) reset() {
	for _, m := range s.minis {
		m.ResetCalls()
	}
}

// scripts returns how many scripts have reached each master.
func (s *set) scripts() []int {
	var counts []int
	for _, m := range s.minis {
		counts = append(counts, m.Calls("EVALSHA")+m.Calls("EVAL"))
	}
	return counts
}

// soon is a context for what must not take long; in fake time it is exact.
func soon(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
