package main

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/internal/test/harness"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// fresh returns a name that nobody else uses and that was never used.
func (p *probe) fresh() string {
	return fmt.Sprintf("q%d.%d.%x", p.w.cfg.Process, p.id, p.rng.Uint64())
}

// longTTL reads with a long TTL and a normal one at once. Only a single master takes a TTL above that of all others.
func (p *probe) longTTL() {
	if len(p.w.cfg.Masters) > 1 {
		return
	}
	ctx, cancel := p.longer()
	defer cancel()
	for range 2 {
		name := p.fresh()
		longer, err := p.locker.RLock(ctx, name, rwlock.WithTTL(2*time.Hour))
		if err != nil {
			return
		}
		if p.rng.IntN(2) == 0 {
			if shorter, err := p.other.RLock(ctx, name); err == nil {
				_ = shorter.Release(ctx)
			}
		} else if shorter, err := reentrant.New(p.other).RLock(reentrant.WithOwner(ctx), name); err == nil {
			_ = shorter.Release(ctx) // an owner's hold is granted by other lines of the scripts
		}
		_ = longer.Release(ctx)
	}
}

// ways are a probe's own links to the servers, which it strikes itself. The history does not know these faults, so
// only what no fault excuses may be judged of them.
type ways []*testredis.Proxy

func (w ways) each(f func(*testredis.Proxy)) {
	for _, link := range w {
		f(link)
	}
}

// most returns all links but those to a minority.
func (w ways) most(p *probe) ways {
	left := p.rng.IntN((len(w) + 1) / 2)
	p.rng.Shuffle(len(w), func(i, j int) { w[i], w[j] = w[j], w[i] })
	return w[left:]
}

// mend ends all faults. Connections that have lost bytes are closed.
func (w ways) mend() {
	w.each(func(l *testredis.Proxy) { l.Restore(); l.Cut() })
}

// overWays calls f with a locker over links of its own. It calls nothing where no server answers.
func (p *probe) overWays(f func(*rwlock.Locker, ways)) {
	_ = harness.Run(context.Background(), func(t testing.TB) error {
		own, links := &worker{cfg: p.w.cfg}, ways{}
		own.cfg.Links, own.cfg.Sends, own.cfg.TTL = maps.Clone(p.w.cfg.Links), false, p.w.cfg.Longest
		for addr, at := range p.w.cfg.Links {
			link := testredis.NewProxy(t, at)
			own.cfg.Links[addr], links = link.Addr(), append(links, link)
		}
		o, err := own.tryToOpen()
		if err != nil {
			return err
		}
		defer o.close()
		f(o.locker, links)
		links.mend()
		return nil
	})
}

// changed changes the TTL of a lease while the links lose and delay messages, and looks until its deadline. The lease
// may not be trusted for longer than the masters have it.
func (p *probe) changed() {
	p.overWays(func(locker *rwlock.Locker, links ways) {
		ctx, cancel := p.longer()
		defer cancel()
		s := p.span(p.fresh(), "terms", true)
		lease, err := locker.Lock(ctx, s.Name, rwlock.WithoutRenewal())
		if err != nil {
			return
		}
		s.Granted, s.Token, s.Bounded = now(), uint64(lease.Token()), true
		over, held := make(chan struct{}), lease.Context(context.Background())
		go func() {
			defer close(over)
			for p.look(&s, held) {
				time.Sleep(time.Millisecond)
			}
		}()
		turns := []func(*rwlock.Lease, ways){p.overtakenByLonger, p.brokenAfterLonger, p.unanswered, p.answeredLate}
		if len(links) > 1 {
			turns = append(turns, p.answeredByFew)
		}
		turns[p.rng.IntN(len(turns))](lease, links)
		<-over
		links.mend()
		p.client.ended(s, lease.Release(ctx))
	})
}

// shorter is a TTL that leaves time for several calls.
func (p *probe) shorter() time.Duration {
	return p.w.cfg.Longest*2/5 + p.millis(int(p.w.cfg.Longest.Milliseconds()/5))
}

// briefly calls a method with little time.
func (p *probe) briefly(d time.Duration, f func(context.Context) error) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	_ = f(ctx)
}

// set returns the call that sets the TTL.
func set(lease *rwlock.Lease, ttl time.Duration) func(context.Context) error {
	return func(ctx context.Context) error { return lease.SetTTL(ctx, ttl) }
}

// astray holds back what the links carry. What reset has broken off arrives with deliver.
func (w ways) astray() (reset, deliver func()) {
	var strays []testredis.Strays
	w.each(func(l *testredis.Proxy) { strays = append(strays, l.Stray()) })
	return func() {
			for _, s := range strays {
				s.Reset()
			}
		}, func() {
			for _, s := range strays {
				s.Deliver()
			}
		}
}

// overtakenByLonger sets a short TTL, whose request arrives after that of a longer one.
func (p *probe) overtakenByLonger(lease *rwlock.Lease, links ways) {
	reset, deliver := links.most(p).astray()
	p.briefly(5*time.Millisecond+p.millis(20), set(lease, p.shorter()))
	reset()
	time.Sleep(p.millis(20))
	p.briefly(300*time.Millisecond, set(lease, p.w.cfg.Longest))
	time.Sleep(p.millis(50))
	deliver()
}

// brokenAfterLonger is overtakenByLonger, but the connections break after the longer TTL was set.
func (p *probe) brokenAfterLonger(lease *rwlock.Lease, links ways) {
	reset, deliver := links.most(p).astray()
	p.briefly(5*time.Millisecond+p.millis(20), set(lease, p.shorter()))
	p.briefly(p.w.cfg.Longest/4+100*time.Millisecond, set(lease, p.w.cfg.Longest)) // it waits for the round before
	reset()
	time.Sleep(p.millis(20))
	p.briefly(300*time.Millisecond, lease.Renew)
	time.Sleep(p.millis(50))
	deliver()
}

// unanswered sets a short TTL without an answer.
func (p *probe) unanswered(lease *rwlock.Lease, links ways) {
	links.most(p).each(func(l *testredis.Proxy) { l.Blackhole(testredis.ToClient) })
	p.briefly(5*time.Millisecond+p.millis(20), set(lease, p.shorter()/2))
}

// answeredLate renews over links with slow answers.
func (p *probe) answeredLate(lease *rwlock.Lease, links ways) {
	d := p.w.cfg.Longest/10 + p.millis(int(p.w.cfg.Longest.Milliseconds()/4))
	links.most(p).each(func(l *testredis.Proxy) {
		l.DelayFunc(testredis.ToClient, func() time.Duration { return d })
	})
	p.briefly(p.w.cfg.Longest, lease.Renew)
}

// answeredByFew renews on a minority.
func (p *probe) answeredByFew(lease *rwlock.Lease, links ways) {
	links.most(p).each(func(l *testredis.Proxy) { l.Blackhole(testredis.ToServer) })
	time.Sleep(p.millis(int(p.w.cfg.Longest.Milliseconds() / 2)))
	p.briefly(p.w.cfg.Longest/4, lease.Renew)
}

// minimumOfDead takes a lock with a minimum that outlasts its TTL, renews it, and is cut off like a process that has
// died. Nobody gets the lock before the minimum is over.
func (p *probe) minimumOfDead() {
	p.overWays(func(locker *rwlock.Locker, links ways) {
		ctx, cancel := context.WithTimeout(context.Background(), 40*shortTTL)
		defer cancel()
		const ttl, least = 4 * shortTTL, 10 * shortTTL
		s := p.span(p.fresh(), "minimum", true)
		lease, err := locker.Lock(ctx, s.Name, rwlock.WithTTL(ttl), rwlock.WithMinHold(least))
		if err != nil {
			return
		}
		s.Granted, s.Token, s.MinHold, s.Bounded = now(), uint64(lease.Token()), int64(least), true
		_ = lease.Renew(ctx)
		links.each(func(l *testredis.Proxy) { l.Refuse(); l.Cut() })
		<-lease.Done()
		p.client.ended(s, lease.Err())
		for range 60 {
			time.Sleep(20 * time.Millisecond)
			next := p.span(s.Name, "try", true)
			rival, err := p.other.TryLock(ctx, s.Name)
			if err == nil {
				next.Granted, next.Token = now(), uint64(rival.Token())
				p.client.ended(next, rival.Release(ctx))
				return
			}
		}
	})
}
