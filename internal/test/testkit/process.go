package testkit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// Net says how a process reaches the masters.
type Net struct {
	Way    time.Duration               // that a message takes each way
	Ways   func() time.Duration        // that each message takes, instead
	Tuned  bool                        // the clients are made by rwlock.Dial, so that a locker can watch them
	Change func(*rueidis.ClientOption) // of its clients, or nil
	Over   *Process                    // the process that it shares the links of, or nil
}

// Process is a locker with its own links and clients, as a process of its own has.
type Process struct {
	*rwlock.Locker
	W       *World
	Link    *testredis.Link    // to the first master
	Links   []*testredis.Link  // to each
	Proxies []*testredis.Proxy // the same, to real servers with one address each
	Client  rueidis.Client     // of the first master
	Clients []rueidis.Client   // of each
}

// Process starts a process over the world's network, with the world's TTL. It is closed when the test ends.
func (w *World) Process(opts ...rwlock.Option) *Process {
	w.Helper()
	return w.ProcessOver(w.Net, opts...)
}

// ProcessAt starts a process with messages that take so long each way.
func (w *World) ProcessAt(way time.Duration, opts ...rwlock.Option) *Process {
	w.Helper()
	n := w.Net
	n.Way = way
	return w.ProcessOver(n, opts...)
}

// NewLink is another link to the first master.
func (w *World) NewLink() *testredis.Link {
	switch {
	case w.Mini != nil:
		return w.Mini.NewLink()
	case w.Group != nil:
		return testredis.NewLink(w.T, w.Group.Option())
	}
	return testredis.NewProxy(w.T, w.Server.Addr()).Link
}

// ProcessOn starts a process over a client of that option, for one master. The link is the one of its commands.
func (w *World) ProcessOn(link *testredis.Link, option rueidis.ClientOption, opts ...rwlock.Option) *Process {
	w.Helper()
	p := &Process{W: w, Link: link, Links: []*testredis.Link{link}}
	p.dial(w.Net, option)
	return p.Start(opts...)
}

// ProcessWith starts a process over a client that the test has made, for one master.
func (w *World) ProcessWith(link *testredis.Link, client rueidis.Client, opts ...rwlock.Option) *Process {
	w.Helper()
	p := &Process{W: w, Link: link, Links: []*testredis.Link{link}, Client: client, Clients: []rueidis.Client{client}}
	return p.Start(opts...)
}

// ProcessOver starts a process over a network of its own.
func (w *World) ProcessOver(n Net, opts ...rwlock.Option) *Process {
	w.Helper()
	return w.Connect(n).Start(opts...)
}

// Connect prepares a process. Start gives it its locker.
func (w *World) Connect(n Net) *Process {
	w.Helper()
	p := &Process{W: w}
	switch {
	case n.Over != nil:
		p.Links, p.Proxies = n.Over.Links, n.Over.Proxies
	case w.Mini != nil:
		for _, mini := range w.Minis {
			p.Links = append(p.Links, mini.NewLink())
		}
	case w.Group != nil:
		p.Links = append(p.Links, w.NewLink())
	default:
		for _, server := range w.Servers {
			p.Proxies = append(p.Proxies, testredis.NewProxy(w.T, server.Addr()))
			p.Links = append(p.Links, p.Proxies[len(p.Proxies)-1].Link)
		}
	}
	p.Link = p.Links[0]
	for _, link := range p.Links {
		if n.Ways != nil {
			link.DelayFunc(testredis.Both, n.Ways)
		} else {
			link.Delay(n.Way)
		}
		if len(p.Links) > 1 {
			link.OnCommand(func(cmd []string) { w.ScriptOf(cmd) })
		}
		p.dial(n, link.Option())
	}
	return p
}

// dial adds a client of that option.
func (p *Process) dial(n Net, option rueidis.ClientOption) {
	p.W.Helper()
	if p.W.Mini == nil && len(p.Links) == 1 {
		option.Dialer.Timeout, option.ConnWriteTimeout = Patience, Patience // on a busy machine seconds are short
	}
	if n.Change != nil {
		n.Change(&option)
	}
	connect := rueidis.NewClient
	if n.Tuned {
		connect = func(o rueidis.ClientOption) (rueidis.Client, error) { return rwlock.Dial("", o) }
	}
	client, err := connect(option)
	for over := time.Now().Add(Patience); err != nil && p.W.Mini == nil && time.Now().Before(over); {
		client, err = connect(option)
	}
	require.NoError(p.W, err)
	p.W.Cleanup(client.Close)
	p.Clients = append(p.Clients, client)
	p.Client = p.Clients[0]
}

// Start gives the process its locker, which is closed at the latest when the test ends.
func (p *Process) Start(opts ...rwlock.Option) *Process {
	w := p.W
	w.Helper()
	all := slices.Concat([]rwlock.Option{testredis.Silent(), rwlock.WithTTL(w.TTL)}, w.Opts, opts)
	if w.Mini == nil {
		all = append(all, testredis.Patience())
	}
	var err error
	if len(p.Clients) == 1 {
		p.Locker, err = rwlock.New(p.Client, all...)
	} else {
		p.foundLongAgo(all)
		p.Locker, err = redlock.New(p.Clients, all...)
	}
	require.NoError(w, err)
	locker := p.Locker
	w.Cleanup(func() {
		if err := locker.Close(); w.Mini != nil && len(p.Clients) > 1 {
			require.NoError(w, err)
		}
	})
	if w.Twice {
		p.sendTwice()
	}
	return p
}

// commander is a server that a test gives a command directly.
type commander interface {
	Command(args ...string) (any, error)
}

// connected is a server that is reached by a client.
type connected struct {
	ctx    context.Context
	client rueidis.Client
}

// Command implements commander.
func (c connected) Command(args ...string) (any, error) {
	return c.client.Do(c.ctx, c.client.B().Arbitrary(args...).Build()).ToAny()
}

var sets atomic.Int64 // ids that were given

// foundLongAgo has the masters of a process with these options be a set already, unless the world is fresh. It does so
// once in a world, for each prefix: what has no marker later has lost it.
func (p *Process) foundLongAgo(opts []rwlock.Option) {
	w := p.W
	if w.Fresh {
		return
	}
	if len(p.Links) == 0 {
		FoundLongAgo(w, p.Clients, opts...)
		return
	}
	var masters []commander
	which := settingsOf(p.Clients, opts).Prefix
	for i := range p.Clients {
		if w.Mini != nil {
			masters = append(masters, w.Minis[i])
		} else {
			masters = append(masters, w.Servers[i])
		}
		which += fmt.Sprintf(" %p", masters[i])
	}
	if !w.founded[which] {
		w.founded[which] = true
		foundLongAgo(masters, p.Clients, opts)
	}
}

// FoundLongAgo gives the masters of a locker with these options the markers of a set whose first quarantine is over. A
// master that does not answer gets none. It does nothing where one of them has a marker.
func FoundLongAgo(t testing.TB, clients []rueidis.Client, opts ...rwlock.Option) {
	var masters []commander
	for _, client := range clients {
		masters = append(masters, connected{t.Context(), client})
	}
	foundLongAgo(masters, clients, opts)
}

func settingsOf(clients []rueidis.Client, opts []rwlock.Option) settings.Locker {
	of := settings.Default()
	of.Clients = clients
	for _, opt := range opts {
		opt.ApplyLocker(&of)
	}
	return of
}

func foundLongAgo(masters []commander, clients []rueidis.Client, opts []rwlock.Option) {
	of := settingsOf(clients, opts)
	var addrs, known []string
	for i, m := range masters {
		if has, _ := m.Command("HGET", of.Prefix+":master", "set"); has != nil {
			return
		}
		addrs = slices.AppendSeq(addrs, maps.Keys(clients[i].Nodes()))
	}
	n, set := len(masters), fmt.Sprint("FOUNDED-LONG-AGO-", sets.Add(1))
	rules := fmt.Sprintf("%d masters, quorum %d, longest TTL %v", n, n/2+1, of.Engine().LongestTTL)
	send := func(purpose string, seat int) (term string) {
		reply, err := masters[seat].Command("EVAL", scripts.Source(scripts.Marker), "1", of.Prefix+":master",
			purpose, "3", rules, set, fmt.Sprint(seat), strings.Join(addrs, " "), "0", strings.Join(known, " "), "")
		if err != nil || reply.([]any)[7] == "" {
			return "0:"
		}
		return fmt.Sprint("1:", reply.([]any)[7])
	}
	var terms []string
	for seat := range masters {
		terms = append(terms, send("join", seat))
	}
	known = terms
	for seat := range masters {
		send("note", seat)
	}
}

// fieldsOf returns the numbers of a reply, a list or a line, in the form in which a server sends it. A line may have a
// number with zeros before it.
func fieldsOf(reply string) (fields []string) {
	kind, content, _ := strings.Cut(reply, "\r\n")
	all := strings.Split(content, "\r\n")
	if strings.HasPrefix(kind, "$") {
		all = strings.Fields(content)
	}
	for _, field := range all {
		fields = append(fields, strings.TrimLeft(strings.TrimPrefix(field, ":"), "0"))
	}
	return fields
}

// sendTwice makes every script of the process run twice from now on. Between the two another process may have made
// room, so only a hold that the first run found granted is compared: it still is, with the same token.
func (p *Process) sendTwice() {
	isScript := func(cmd []string) bool { return p.W.ScriptOf(cmd) != "" }
	p.Link.Duplicate(isScript, func(cmd []string, first, second string) {
		switch p.W.ScriptOf(cmd) {
		case scripts.Acquire, scripts.Join:
			one, two := fieldsOf(first), fieldsOf(second)
			if len(one) > 1 && one[0] == "1" && (len(two) < 2 || !slices.Equal(one[:2], two[:2])) { // status, token
				p.W.Errorf("%s %q was answered by %q, and again by %q", p.W.ScriptOf(cmd), cmd[3:], first, second)
			}
		}
	})
}

// CutOff takes the links to these masters away.
func (p *Process) CutOff(masters ...int) {
	for _, i := range masters {
		p.Links[i].Refuse()
		p.Links[i].Cut()
	}
}

// Restore ends what CutOff and the faults of the links have done to these masters.
func (p *Process) Restore(masters ...int) {
	for _, i := range masters {
		p.Links[i].Restore()
	}
}

// Die cuts the process off for good, as a crash does. What it held and waited for stays on the server until it expires.
func (p *Process) Die() {
	p.CutOff(Span(0, len(p.Links))...)
	p.W.Settle() // the server knows that the listener is gone
}

// Take takes the lock, and fails the test if that fails.
func (p *Process) Take(name string, mode rwlock.Mode, opts ...rwlock.LockOption) *rwlock.Lease {
	p.W.Helper()
	return p.Acquire(p.W.Ctx, name, mode, opts...).Granted()
}

// Try takes the lock if it is free. In fake time all masters have answered when it returns.
func (p *Process) Try(name string, mode rwlock.Mode, opts ...rwlock.LockOption) (*rwlock.Lease, error) {
	defer p.W.Settle()
	if mode == rwlock.Read {
		return p.TryRLock(p.W.Ctx, name, opts...)
	}
	return p.TryLock(p.W.Ctx, name, opts...)
}

// Section takes the lock for writing and gives it back, and fails the test if that fails.
func (p *Process) Section(name string, opts ...rwlock.LockOption) {
	p.W.Helper()
	p.W.Release(p.Take(name, rwlock.Write, opts...))
}

// WarmUp lets the process connect, and the masters learn the scripts, so that each request is one command from now on.
func (p *Process) WarmUp() {
	p.W.Helper()
	lease := p.Take("warm up", rwlock.Write)
	require.NoError(p.W, lease.Renew(p.W.Ctx))
	p.W.Release(lease)
}

// TryOnce tries to lock for writing, and gives back at once what it gets.
func (p *Process) TryOnce(name string) error {
	lease, err := p.TryLock(p.W.Ctx, name)
	if err == nil {
		err = lease.Release(p.W.Ctx)
	}
	return err
}

// Use takes, renews and gives back locks, so that connections stand and scripts are known. A busy machine may need more
// than one try.
func (p *Process) Use(names ...string) {
	p.W.Helper()
	for _, name := range names {
		require.Eventually(p.W, func() bool {
			ctx, cancel := context.WithTimeout(p.W.Ctx, Patience/2)
			defer cancel()
			lease, err := p.Lock(ctx, name)
			if err != nil {
				return false
			}
			renewed := lease.Renew(p.W.Ctx)
			return lease.Release(p.W.Ctx) == nil && renewed == nil
		}, Patience, time.Millisecond, name)
	}
}

// New is a locker over a client, without a world. It is closed when the test ends.
func New(t testing.TB, client rueidis.Client, opts ...rwlock.Option) *rwlock.Locker {
	t.Helper()
	locker, err := rwlock.New(client, append([]rwlock.Option{testredis.Silent()}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = locker.Close() })
	return locker
}

// Dial is a locker over a client of rwlock.Dial, without a world or a link, that waits for a busy machine. Both are
// closed when the test ends.
func Dial(t testing.TB, addr string, option rueidis.ClientOption, opts ...rwlock.Option) *rwlock.Locker {
	t.Helper()
	option.Dialer.Timeout, option.ConnWriteTimeout = Patience, Patience
	client, err := rwlock.Dial(addr, option)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return New(t, client, append(opts, testredis.Patience())...)
}

// RequireFree fails the test unless every master shows the lock without holders and waiters.
func (p *Process) RequireFree(name string) {
	p.W.Helper()
	state, err := p.Inspect(p.W.Ctx, name)
	require.NoError(p.W, err)
	for _, m := range state.Masters {
		require.NoError(p.W, m.Err)
		require.Empty(p.W, m.Holders, "master %d", m.Index)
		require.Empty(p.W, m.Waiters, "master %d", m.Index)
	}
}
