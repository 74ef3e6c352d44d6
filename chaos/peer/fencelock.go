package peer

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// fencelocks has the defaults of this library but for the TTL.
type fencelocks struct {
	locker  *rwlock.Locker
	clients []rueidis.Client
}

func openFencelock(o Options) (_ Locks, err error) {
	l := &fencelocks{}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	for _, addr := range o.Addrs {
		client, err := rwlock.Dial(addr, rueidis.ClientOption{
			DialCtxFn: func(ctx context.Context, addr string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return o.Dial(ctx, addr)
			},
		})
		if err != nil {
			return nil, err
		}
		l.clients = append(l.clients, client)
	}
	if len(l.clients) == 1 {
		l.locker, err = rwlock.New(l.clients[0], rwlock.WithTTL(o.TTL))
	} else {
		l.locker, err = redlock.New(l.clients, rwlock.WithTTL(o.TTL))
	}
	return l, err
}

func (l *fencelocks) Lock(ctx context.Context, name string) (Hold, error) {
	lease, err := l.locker.Lock(ctx, name)
	if err != nil {
		return nil, err
	}
	return fencelockHold{lease}, nil
}

func (l *fencelocks) Close() {
	if l.locker != nil {
		_ = l.locker.Close()
	}
	for _, client := range l.clients {
		client.Close()
	}
}

type fencelockHold struct{ *rwlock.Lease }

func (h fencelockHold) Held(context.Context) bool { return h.Err() == nil }
func (h fencelockHold) Value() string             { return "" }
