package transport

import (
	"context"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// listener receives the messages to this process from one master, on a connection of its own, from the first waiter
// until the engine closes. Messages are hints: whenever the connection is new, all waiters ask again, and between times
// their refresh finds whatever was missed.
type listener struct {
	m     *Master
	once  sync.Once
	tried chan struct{} // closed when the first attempt to listen is over
}

func (l *listener) start() {
	l.once.Do(func() { l.m.cfg.Spawn(func() { l.supervise(l.m.cfg.Life) }) })
}

// firstTry closes tried.
func (l *listener) firstTry() {
	select {
	case <-l.tried:
	default:
		close(l.tried)
	}
}

// supervise dedicates a connection again whenever the last one broke: rueidis does not.
func (l *listener) supervise(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		if l.listen(ctx) {
			failures = 0
		}
		l.m.clock.forget()
		wait := time.NewTimer(Backoff(failures))
		failures++
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
	}
}

// listen returns when the connection is lost, and whether it had ever stood.
func (l *listener) listen(ctx context.Context) (stood bool) {
	c, giveBack := l.dedicate(ctx)
	if c == nil {
		return false
	}
	defer giveBack()
	broken := c.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(msg rueidis.PubSubMessage) {
		l.m.cfg.OnMessage(l.m, msg.Message)
	}})
	if !l.subscribe(ctx, c, broken) {
		c.Close()
		return false
	}
	l.m.cfg.OnListen(l.m)
	select {
	case <-broken:
	case <-ctx.Done():
	}
	c.Close()
	return true
}

// refusedMost bounds the pause between attempts to subscribe that the server refuses.
const refusedMost = time.Minute

// subscribe returns whether messages arrive. What a server refuses for good is tried again over the same connection:
// a new one would look like another server.
func (l *listener) subscribe(ctx context.Context, c rueidis.DedicatedClient, broken <-chan error) bool {
	for pause := time.Second; ; pause = min(2*pause, refusedMost) {
		attempt, cancel := context.WithTimeout(ctx, l.m.cfg.Patience)
		err := c.Do(withoutDeadline{attempt}, c.B().Subscribe().Channel(l.m.cfg.Channel).Build()).Error()
		cancel()
		l.firstTry()
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		l.m.cfg.OnDeaf(l.m, err)
		if !l.m.Permanent(err) {
			return false
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-broken:
			wait.Stop()
			return false
		case <-ctx.Done():
			wait.Stop()
			return false
		}
	}
}

// dialGrace is how long the end of the engine waits for a dial that is under way.
const dialGrace = time.Second

// dedicate waits for a connection, but not past ctx for one that others have: a client's pool may be as small as one.
// The goroutine that waits on is then ended by whoever gives that connection back, or closes the client.
func (l *listener) dedicate(ctx context.Context) (c rueidis.DedicatedClient, giveBack func()) {
	type connection struct {
		client   rueidis.DedicatedClient
		giveBack func()
	}
	got := make(chan connection, 1)
	go func() {
		client, giveBack := l.m.client.Dedicate()
		got <- connection{client, giveBack}
	}()
	select {
	case c := <-got:
		return c.client, c.giveBack
	case <-ctx.Done():
	}
	grace := time.NewTimer(dialGrace)
	defer grace.Stop()
	select {
	case c := <-got:
		c.giveBack()
	case <-grace.C:
		go func() { (<-got).giveBack() }()
	}
	return nil, nil
}
