package transport_test

import (
	"context"
	"crypto/tls"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// patience is how long a batch is waited for in these tests.
const patience = 5 * time.Second

// The scripts that these tests send.
var (
	acquire = transport.NewScript(scripts.Acquire, "")
	refresh = transport.NewScript(scripts.Refresh, "")
	renew   = transport.NewScript(scripts.Renew, "")
)

// bed is a master and what it is embedded in.
type bed struct {
	*transport.Master
	outcomes
	t       testing.TB
	cfg     *transport.Config
	end     context.CancelFunc
	tasks   sync.WaitGroup
	aside   atomic.Int64 // calls that another goroutine than their caller's has sent
	closed  atomic.Bool  // nothing is spawned any more
	mini    *testredis.Mini
	link    *testredis.Link
	client  *tuned // nil for a client that does not count its connections
	own     rueidis.Client
	heard   chan string
	listens chan struct{}
	down    chan error
	moves   atomic.Int64

	separated atomic.Int64 // how often it was told
}

// newBed runs the pipeline of a master until the test ends.
func newBed(t testing.TB, client rueidis.Client, changes ...func(*transport.Config)) *bed {
	t.Helper()
	life, end := context.WithCancel(context.Background())
	b := &bed{
		t: t, end: end, heard: make(chan string, 100), listens: make(chan struct{}, 100), down: make(chan error, 100),
	}
	b.cfg = &transport.Config{
		Listening: life, Life: life, Clock: clock.System(), Drift: 0.01, BatchTimeout: patience, SlowCallAfter: time.Second,
		Channel: "channel", Renew: func(*transport.Master) *transport.Script { return renew }, Spawn: b.spawn,
		OnMessage:         func(_ *transport.Master, _ *transport.Node, text string) { b.heard <- text },
		OnListen:          func(*transport.Master, *transport.Node) { b.listens <- struct{}{} },
		OnSubscribeFailed: func(_ *transport.Master, _ *transport.Node, err error) { b.down <- err },
		OnMoved:           func(*transport.Master) { b.moves.Add(1) },
		OnSlowCall:        func(*transport.Master, *transport.Node, error) {},

		OnFirstAnswer: func(*transport.Node) {},
		OnUnread:      func() {},
		OnSeparated:   func(*transport.Node, error) { b.separated.Add(1) },
	}
	for _, change := range changes {
		change(b.cfg)
	}
	b.client, _ = client.(*tuned)
	b.own = client
	b.Master = transport.NewMaster(b.cfg, 0, watching(client))
	b.tasks.Go(b.Run)
	t.Cleanup(b.stop)
	return b
}

// inBed runs a test in fake time with a master over a link of its own.
func inBed(t *testing.T, test func(t *testing.T, b *bed), changes ...func(*transport.Config)) {
	inBedOf(t, func(t *testing.T, link *testredis.Link) rueidis.Client { return link.Client(t) }, test, changes...)
}

// inTunedBed is inBed with a client that counts its connections.
func inTunedBed(t *testing.T, test func(t *testing.T, b *bed), changes ...func(*transport.Config)) {
	inBedOf(t, func(t *testing.T, link *testredis.Link) rueidis.Client { return dial(t, link.Option()) }, test, changes...)
}

// inBedOf is inBed with that client.
func inBedOf(
	t *testing.T, client func(*testing.T, *testredis.Link) rueidis.Client,
	test func(t *testing.T, b *bed), changes ...func(*transport.Config),
) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		link := mini.NewLink()
		b := newBed(t, client(t, link), changes...)
		b.mini, b.link = mini, link
		test(t, b)
	})
}

// ofMode returns the client of a link that says of itself that it is of another kind.
func ofMode(mode rueidis.ClientMode) func(*testing.T, *testredis.Link) rueidis.Client {
	return func(t *testing.T, link *testredis.Link) rueidis.Client { return &modeClient{link.Client(t), mode} }
}

// evaluation is a script call that reached the server.
type evaluation struct {
	command    string // EVALSHA or EVAL
	keys, args []string
}

// evaluations notes the script calls that arrive, and returns those since it was called last.
func (b *bed) evaluations() (take func() []evaluation) {
	var mu sync.Mutex
	var all []evaluation
	b.link.OnCommand(func(cmd []string) {
		if cmd[0] == "EVALSHA" || cmd[0] == "EVAL" {
			n, _ := strconv.Atoi(cmd[2])
			mu.Lock()
			defer mu.Unlock()
			all = append(all, evaluation{cmd[0], cmd[3 : 3+n], cmd[3+n:]})
		}
	})
	return func() (taken []evaluation) {
		mu.Lock()
		defer mu.Unlock()
		taken, all = all, nil
		return taken
	}
}

// callers is the key of a context's value: whether its caller itself sends with it.
type callers struct{}

type watched struct{ rueidis.Client }

func (w watched) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	if own, ok := ctx.Value(callers{}).(*bool); ok {
		*own = true
	}
	return w.Client.Do(ctx, cmd)
}

// watching is the client, which sees who sends, and tells of its connections what it told before.
func watching(client rueidis.Client) rueidis.Client {
	if !transport.IsTuned(client) {
		return watched{client}
	}
	return transport.Wrap(client, watched{client})
}

// stop ends the bed. One that does not end has failed its test, which does not wait for it for ever.
func (b *bed) stop() {
	b.end()
	select {
	case <-b.over():
	case <-time.After(time.Minute):
		b.t.Error("not all tasks end with the engine")
	}
}

// over is closed when no task is left.
func (b *bed) over() <-chan struct{} {
	over := make(chan struct{})
	go func() {
		defer close(over)
		b.tasks.Wait()
	}()
	return over
}

func (b *bed) spawn(task func()) bool {
	if b.closed.Load() {
		return false
	}
	b.tasks.Go(task)
	return true
}

// home is the node of a master that has one only.
func (b *bed) home() *transport.Node { return b.At("") }

func (b *bed) Failing() bool { return b.home().Failing() }

// Backoff returns how long background work waits from now on, and the failure that it waits for.
func (b *bed) Backoff() (wait time.Duration, cause error) {
	until, cause := b.home().Backoff(b.now().Mono)
	return until - b.now().Mono, cause
}

func (b *bed) MaxServerTime(now clock.Instant) (micros int64, known bool) {
	return b.Master.MaxServerTime("", b.home(), "", now)
}

func (b *bed) now() clock.Instant { return b.cfg.Clock.Now() }

// keysOf are the keys of a call for a lock on a single master.
func keysOf(name string) []string { return []string{"t:{" + name + "}"} }

// acquireArgs are those of a try for the write lock.
func acquireArgs(hold string, ttl time.Duration) []string {
	details := wire.Details{Mode: fencing.Write, HandoffTTL: "3000", Route: wire.Published("channel")}
	return wire.Acquire{
		Hold: hold, TTL: wire.FormatMillis(ttl), Order: wire.NoQueue, Details: details.Text(),
	}.Args(nil)
}

// read makes these arguments of a writer those of a reader.
func read(acquire []string) {
	acquire[0] = acquire[0][:len(acquire[0])-1] + "r"
	acquire[1] = "r" + acquire[1][1:]
}

// do calls a script that needs nothing and tells the server's time, and notes that as the engine does.
func (b *bed) do(ctx context.Context) error {
	own := false
	r, sent := b.Do(context.WithValue(ctx, callers{}, &own), 0, refresh, keysOf("any"), wire.Vote{}, nil)
	if !own {
		b.aside.Add(1)
	}
	fields, err := r.AsIntSlice()
	if err == nil {
		b.Sample("", sent, fields[0])
	}
	return err
}

func (b *bed) mustDo() {
	b.t.Helper()
	require.NoError(b.t, b.do(context.Background()))
}

// outcome is what a Call or a Renewal ended with.
type outcome struct {
	id      int
	err     error
	renewed bool
	sent    clock.Instant
}

// outcomes gathers them in order.
type outcomes struct {
	mu  sync.Mutex
	all []outcome
}

func (o *outcomes) add(one outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, one)
}

func (o *outcomes) take() (taken []outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	taken, o.all = o.all, nil
	return taken
}

// call is a refresh that names itself by a lock of its own.
func (o *outcomes) call(id int, urgent bool) transport.Call {
	return transport.Call{
		Script: refresh, Keys: keysOf(strconv.Itoa(id)), Urgent: urgent,
		To: transport.ReceiverFunc(func(r rueidis.RedisResult, sent clock.Instant) {
			o.add(outcome{id: id, err: r.Error(), sent: sent})
		}),
	}
}

// tuned is a client that counts its connections, as one from rwlock.Dial does.
type tuned struct {
	rueidis.Client
	dials  *atomic.Uint64
	closed atomic.Bool
}

func (c *tuned) Dials() uint64 { return c.dials.Load() }

func (c *tuned) OtherDials() uint64 { return 0 }

func (c *tuned) SendsAgain() bool { return false }

func (c *tuned) ForMessages(dedicate func()) { dedicate() }

func (c *tuned) NextDial() <-chan struct{} { return nil }

func (c *tuned) Leave(error) {}

func (c *tuned) Closed() bool { return c.closed.Load() }

func (c *tuned) Close() {
	c.closed.Store(true)
	c.Client.Close()
}

// dial returns a tuned client of these options. It is closed when the test ends.
func dial(t testing.TB, option rueidis.ClientOption) *tuned {
	t.Helper()
	dials := new(atomic.Uint64)
	client := expect.NoError(rueidis.NewClient(counting(option, dials))).In(t)
	t.Cleanup(client.Close)
	return &tuned{Client: client, dials: dials}
}

// counting counts the attempts to connect.
func counting(option rueidis.ClientOption, dials *atomic.Uint64) rueidis.ClientOption {
	inner := option.DialCtxFn
	option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
		dials.Add(1)
		if inner == nil {
			return d.DialContext(ctx, "tcp", addr)
		}
		return inner(ctx, addr, d, c)
	}
	return option
}

func (o *outcomes) renewed(id int) func(bool, error, clock.Instant) {
	return func(renewed bool, err error, sent clock.Instant) {
		o.add(outcome{id: id, err: err, renewed: renewed, sent: sent})
	}
}

// acquire takes the lock of that number for the hold of that number, and returns the token.
func (b *bed) acquire(id int) fencing.Token {
	b.t.Helper()
	reply, err := b.try(context.Background(), id)
	require.NoError(b.t, err)
	require.Equal(b.t, wire.Granted, reply.Status)
	return reply.Token
}

// modeClient says of itself that it is of another kind.
type modeClient struct {
	rueidis.Client
	mode rueidis.ClientMode
}

func (c *modeClient) Mode() rueidis.ClientMode { return c.mode }

func (c *modeClient) Nodes() map[string]rueidis.Client { return nil }
