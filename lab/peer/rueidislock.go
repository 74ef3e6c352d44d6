package peer

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// rueidislockPeer has the options that make it fastest: one key a lock on one master, no invalidations of its own
// writes, and a limit for an attempt that a thousand goroutines do not exceed.
type rueidislockPeer struct{ locker rueidislock.Locker }

func rueidislockKey(name string) string { return "rueidislock:0:" + name }

// openRueidislockAsIs keeps the default client and the default time between two attempts: a waiter asks every 20 ms, in
// addition to the invalidations it gets.
func openRueidislockAsIs(o Options) (Peer, error) {
	option := o.option()
	if len(o.Addrs) > 0 {
		option.InitAddress = o.Addrs[:1]
	}
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: option, KeyValidity: o.TTL, KeyMajority: 1, NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	return &rueidislockPeer{locker}, nil
}

func openRueidislock(o Options) (Peer, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{ClientName: o.ClientName},
		ClientBuilder:  func(base rueidis.ClientOption) (rueidis.Client, error) { return dialCaching(o.Addrs[0], base) },
		KeyValidity:    o.TTL,
		KeyMajority:    1,
		NoLoopTracking: true,
		TryNextAfter:   time.Second,
	})
	if err != nil {
		return nil, err
	}
	return &rueidislockPeer{locker}, nil
}

// dialCaching is rwlock.Dial with a client-side cache, by which rueidislock learns of releases.
func dialCaching(addr string, base rueidis.ClientOption) (rueidis.Client, error) {
	base = asDial(addr, base)
	base.AlwaysPipelining = true
	return rueidis.NewClient(base)
}

func (p *rueidislockPeer) Lock(ctx context.Context, name string) (Hold, error) {
	held, release, err := p.locker.WithContext(ctx, name)
	if err != nil {
		return nil, err
	}
	return &rueidislockHold{held, release}, nil
}

func (p *rueidislockPeer) Close() error {
	p.locker.Close()
	return nil
}

type rueidislockHold struct {
	ctx     context.Context
	release context.CancelFunc
}

func (h *rueidislockHold) Release(context.Context) error {
	h.release()
	return nil
}

func (h *rueidislockHold) Lost() bool { return h.ctx.Err() != nil }
