package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// ttl is the TTL of every lease except the stalled ones. A busy machine must not make the clients lose leases by
// accident.
const ttl = 2 * time.Second

// releaseTimeout bounds the time that clients wait at the end for unreachable servers.
const releaseTimeout = time.Second

// client has the connections and the locker that a separate process would have.
type client struct {
	id     int
	link   *link
	conns  []rueidis.Client
	locker *rwlock.Locker
	nested *reentrant.Locker
}

func newClient(id int, m *masters) (*client, error) {
	c := &client{id: id, link: newLink()}
	var err error
	if c.conns, err = m.dial(c.link); err != nil {
		return nil, err
	}
	c.locker, err = newLocker(c.conns,
		rwlock.WithPrefix("fencelock-bench"), rwlock.WithTTL(ttl), rwlock.WithMeta(clientName(id)),
		rwlock.WithReleaseTimeout(releaseTimeout))
	if err != nil {
		closeAll(c.conns)
		return nil, err
	}
	c.nested = reentrant.New(c.locker)
	return c, nil
}

func clientName(id int) string { return fmt.Sprintf("client %d", id) }

func (c *client) close() {
	_ = c.locker.Close()
	closeAll(c.conns)
}

// startLimit is enough for masters that were restarted a moment ago, or that answered too late on a busy machine to be
// taken for a first start: they abstain for the longest TTL.
const startLimit = 10 * ttl

// probe takes a lock that no other client takes, to detect any fault of the servers.
func (c *client) probe(ctx context.Context, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	lease, err := c.locker.Lock(ctx, fmt.Sprintf("probe/%d", c.id))
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// team is all clients of a run. The last one is the holder that stalls.
type team []*client

func newTeam(ctx context.Context, size int, m *masters) (team, error) {
	var t team
	for id := 1; id <= size; id++ {
		c, err := newClient(id, m)
		if err != nil {
			t.close()
			return nil, err
		}
		t = append(t, c)
	}
	if err := t[0].probe(ctx, startLimit); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// close takes as long as the slowest client, which waits a while for unreachable masters.
func (t team) close() {
	var all sync.WaitGroup
	for _, c := range t {
		all.Go(c.close)
	}
	all.Wait()
}

// stats are the sums over all lockers.
func (t team) stats() rwlock.Stats {
	var sum rwlock.Stats
	for _, c := range t {
		s := c.locker.Stats()
		sum.Held += s.Held
		sum.Waiting += s.Waiting
		sum.Acquired += s.Acquired
		sum.Contended += s.Contended
		sum.HandedOff += s.HandedOff
		sum.Lost.Gone += s.Lost.Gone
		sum.Lost.NotRenewed += s.Lost.NotRenewed
		sum.Lost.Paused += s.Lost.Paused
		sum.Lost.MaxHold += s.Lost.MaxHold
		sum.Lost.Broken += s.Lost.Broken
		sum.Expired += s.Expired
		sum.Renewed += s.Renewed
		sum.RenewFailed += s.RenewFailed
	}
	return sum
}
