// Package admin shows what the masters have of locks, and breaks holds for an operator. It asks the masters and has no
// part in a lease: what it sees is what any process would see.
package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/hold"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/masterset"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// View is a lock as one master shows it.
type View struct {
	Index   int
	Addr    string
	Token   fencing.Token
	Holders []wire.Holder
	Waiters []wire.Waiter
	Err     error
	Silent  bool // the master did not answer; else it answered, if only with Err
}

// Admin asks the masters of one engine. Its zero Config is of no use.
type Admin struct {
	Config
	evicting sync.Map // the addresses of the servers of which the log says that they evict keys
}

// Config has what an Admin needs of its engine. Every field is set.
type Config struct {
	Masters    []*transport.Master
	MasterSet  *masterset.Set
	Keys       wire.Keyspace
	Clock      clock.Clock
	Timeout    time.Duration // of one call
	AskTimeout time.Duration // of a question to a server that is no script
	Scripts    func(m *transport.Master) (inspect, breaks *transport.Script)
	Proposal   func() int64 // the token floor to propose
	GoOn       func(m *transport.Master, key string, more wire.More)
	Warn       func(message string, attributes ...slog.Attr)
	Life       context.Context   // ends when the locker is closed
	Closed     func() bool       // Close has begun
	Spawn      func(func()) bool // starts a goroutine that Close waits for; false after Close
}

// Inspect asks every master for the state of the lock, and changes nothing. Each view is of one master only: a lock
// that one of several masters shows as held may have no holder, if no quorum shows the same. open is false after Close.
func (a *Admin) Inspect(ctx context.Context, name string) (all []View, open bool) {
	return askAll(a, func(m *transport.Master) View { return a.view(ctx, m, name) })
}

// askAll calls ask for every master at once, and returns the answers by master.
func askAll[Answer any](of *Admin, ask func(m *transport.Master) Answer) (all []Answer, open bool) {
	all, open = make([]Answer, len(of.Masters)), !of.Closed()
	var asked sync.WaitGroup
	for i, m := range of.Masters {
		asked.Add(1)
		if !open || !of.Spawn(func() { all[i] = ask(m); asked.Done() }) {
			return nil, false // if it is closed in between, the masters that were asked still answer
		}
	}
	asked.Wait()
	return all, true
}

// Ping asks every server of each master whether it would grant a lock: whether it takes writes, runs the scripts and
// evicts nothing, and whether its marker lets it vote for this engine. It writes nothing. A view has only the error,
// with a cure.
func (a *Admin) Ping(ctx context.Context) (all []View, open bool) {
	markers := make([]masterset.Reading, len(a.Masters))
	all, open = askAll(a, func(m *transport.Master) View {
		v := View{Index: m.Index, Addr: m.Addr()}
		bounded, cancel := context.WithTimeout(ctx, a.Timeout)
		defer cancel()
		sent := a.Clock.Now()
		shards, _, err := m.Shards()
		if err == nil && len(shards) == 0 {
			err = transport.ErrNoSlots
		}
		for _, shard := range shards {
			if err = a.ping(bounded, m, shard); err != nil {
				v.Addr = shard.Addr
				break
			}
		}
		markers[m.Index] = a.MasterSet.Read(bounded, m.Index)
		if err != nil && bounded.Err() != nil {
			err = &transport.NoReply{After: a.Clock.Now().Mono - sent.Mono}
		}
		v.Err = m.Explain(err)
		if cure := transport.Cure(v.Err); cure != "" {
			v.Err = &transport.Advised{Refusal: v.Err, Advice: cure}
		}
		return v
	})
	if !open {
		return nil, false
	}
	for i, standing := range a.MasterSet.Examine(markers) {
		switch v := &all[i]; {
		case v.Err != nil:
		case standing.Err != nil && len(all) == 1:
			v.Err = standing.Err
		case standing != masterset.Standing{}:
			v.Err = &lockerr.Abstaining{For: standing.Abstains, Err: standing.Err}
		}
	}
	return all, true
}

// ping asks one server. In a Cluster it looks for a name of this server.
func (a *Admin) ping(ctx context.Context, m *transport.Master, shard transport.Shard) error {
	var name string
	key, err := shard.FindKey(ctx, func(yield func(string) bool) {
		for i := range mostNames {
			name = fmt.Sprintf("ping:%d", i)
			if !yield(wire.AllOf(a.Keys.Of(name))[1]) { // a sorted set, as the check needs it
				return
			}
		}
	})
	if err == nil {
		err = a.view(ctx, m, name).Err
	}
	if err != nil {
		return err
	}
	if policy, limited, known := m.At(key).EvictionPolicy(ctx); known && limited && policy != noEviction {
		return fmt.Errorf("evicts keys: its maxmemory-policy is %s, locks need %s", policy, noEviction)
	}
	return nil
}

const mostNames = 4096 // some name of so many is in each server's slots

func (a *Admin) quorum() int { return len(a.Masters)/2 + 1 }

// view asks one master for the state of the lock.
func (a *Admin) view(ctx context.Context, m *transport.Master, name string) View {
	bounded, cancel := context.WithTimeout(ctx, a.Timeout)
	defer cancel()
	k := wire.AllOf(a.Keys.Of(name))
	inspect, _ := a.Scripts(m)
	r, sent := m.Do(bounded, 0, inspect, k[:1], wire.Vote{}, nil)
	reply, err := wire.ReadInspect(r)
	if err == nil {
		err = m.At(k[0]).Replica(bounded, k[1])
	}
	// The time limit is this package's or the caller's. In both cases the master did not answer within it.
	if err != nil && bounded.Err() != nil {
		err = &transport.NoReply{After: a.Clock.Now().Mono - sent.Mono}
	}
	return View{
		Index: m.Index, Addr: m.At(k[0]).Addr(), Token: reply.Token, Holders: reply.Holders, Waiters: reply.Waiters,
		Err: m.Explain(err), Silent: r.NonRedisError() != nil,
	}
}

// Listed is one lock with the views of all masters, or why some locks are not listed: a *NodeFailure for a server that
// does not list its locks, ErrClosed, or the end of the context.
type Listed struct {
	Name  string
	Views []View
	Err   error
}

// List yields each lock whose name begins with namePrefix and that some master shows as held or waited for; with free
// also those that only have a token. It changes nothing. A server that fails is left out from there on, and the listing
// of the other servers continues.
func (a *Admin) List(ctx context.Context, namePrefix string, free bool) iter.Seq[Listed] {
	return func(yield func(Listed) bool) {
		l := &listing{
			Admin: a, ctx: ctx, pattern: a.Keys.Pattern(namePrefix), free: free, yield: yield,
			listed: make(map[string]struct{}), silent: make([]error, len(a.Masters)),
		}
		for _, m := range a.Masters {
			if !l.ofMaster(m) {
				return
			}
		}
	}
}

// listing is a List in progress. Its methods return false when the listing ends.
type listing struct {
	*Admin
	ctx      context.Context
	pattern  string
	free     bool
	yield    func(Listed) bool
	listed   map[string]struct{} // the names yielded so far: several masters have them, and SCAN repeats keys
	failures int                 // so far
	silent   []error             // by master: why it is not asked about locks of another's list; nil if it answers
}

// scanRounds bounds how often the servers of a master are scanned because keys have moved in between.
const scanRounds = 3

var errMoved = errors.New("keys moved between servers during the listing, so some locks may be missing in it")

func (l *listing) ofMaster(m *transport.Master) bool {
	for round := 1; ; round++ {
		shards, before, err := l.shards(m)
		if err != nil {
			return l.fail(m, m.Addr(), err)
		}
		failures := l.failures
		for _, shard := range shards {
			if !l.ofShard(m, shard) {
				return false
			}
		}
		if l.failures-failures == len(shards) { // it has been said of each, and a new connection would repeat it
			return true
		}
		_, after, err := l.shards(m)
		if err != nil {
			return l.fail(m, m.Addr(), err)
		}
		if after == before {
			return true
		}
		if round == scanRounds {
			return l.fail(m, m.Addr(), errMoved)
		}
	}
}

func (l *listing) shards(m *transport.Master) (all []transport.Shard, version string, err error) {
	var got []transport.Shard
	var at string
	err = l.step(l.AskTimeout, func(context.Context) (err error) {
		got, at, err = m.Shards()
		return err
	})
	if err != nil {
		return nil, "", err
	}
	return got, at, nil
}

// step runs one step on a goroutine that Close waits for, because a step may have to wait for a dial. After an error it
// may still run, so what it sets must not be read.
func (l *listing) step(limit time.Duration, run func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(l.ctx, limit)
	defer cancel()
	done := make(chan error, 1)
	if l.Closed() || !l.Spawn(func() { done <- run(bounded) }) {
		return lockerr.ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-bounded.Done():
		return &transport.NoReply{After: limit}
	}
}

// fail yields why a server does not list its locks. At the end of the context and of the engine the listing ends.
func (l *listing) fail(m *transport.Master, addr string, err error) bool {
	if l.ctx.Err() != nil {
		l.yield(Listed{Err: errs.Cause(l.ctx)})
		return false
	}
	if l.Closed() {
		l.yield(Listed{Err: lockerr.ErrClosed})
		return false
	}
	l.failures++
	return l.yield(Listed{Err: &lockerr.NodeFailure{Index: m.Index, Addr: addr, Err: m.Explain(err)}})
}

// ofShard lists the locks of one server, step by step. A failure ends its part of the listing.
func (l *listing) ofShard(m *transport.Master, shard transport.Shard) bool {
	for cursor := uint64(0); ; {
		var keys []string
		var next uint64
		err := l.step(l.Timeout, func(ctx context.Context) (err error) {
			if keys, next, err = shard.Scan(ctx, l.pattern, cursor); err == nil {
				err = shard.Replica(ctx, l.Keys.Marker)
			}
			return err
		})
		if err != nil {
			return l.fail(m, shard.Addr, err)
		}
		silence, more := l.show(m, keys)
		if silence != nil {
			return l.fail(m, shard.Addr, silence)
		}
		if cursor = next; !more || cursor == 0 {
			return more
		}
	}
}

// show yields the locks that these keys of one server belong to. The server's own view decides whether a lock is
// listed, so that a lock that is free costs the other masters nothing. silence is why the server did not answer for
// some locks.
func (l *listing) show(m *transport.Master, keys []string) (silence error, more bool) {
	var names []string
	for _, key := range keys {
		if name, ok := l.Keys.NameOf(key); ok {
			if _, before := l.listed[name]; !before {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	own := l.ofLocks(m, names, nil)
	var shown []string
	var all [][]View // by name
	for i, v := range own {
		if v.Silent {
			silence = v.Err
		} else if v.Err != nil || len(v.Holders) > 0 || len(v.Waiters) > 0 || l.free && v.Token > 0 {
			views := make([]View, len(l.Masters))
			views[m.Index] = v
			shown, all = append(shown, names[i]), append(all, views)
		}
	}
	for _, other := range l.Masters {
		if other == m {
			continue
		}
		for i, v := range l.ofLocks(other, shown, l.silent[other.Index]) {
			all[i][other.Index] = v
			if v.Silent {
				l.silent[other.Index] = v.Err
			}
		}
	}
	for i, name := range shown {
		l.listed[name] = struct{}{}
		if !l.yield(Listed{Name: name, Views: all[i]}) {
			return nil, false
		}
		if l.ctx.Err() != nil || l.Closed() {
			return cmp.Or(l.ctx.Err(), lockerr.ErrClosed), true // in fail the listing ends
		}
	}
	return silence, true
}

// ofLocks returns the views of one master on these locks. A master that is silent is not asked.
func (l *listing) ofLocks(m *transport.Master, names []string, silence error) []View {
	views := make([]View, len(names))
	var asked sync.WaitGroup
	for i, name := range names {
		task := func() {
			defer asked.Done()
			views[i] = l.view(l.ctx, m, name)
		}
		asked.Add(1)
		if silence != nil || !l.Spawn(task) {
			views[i] = View{Index: m.Index, Addr: m.Addr(), Err: cmp.Or(silence, lockerr.ErrClosed), Silent: true}
			asked.Done()
		}
	}
	asked.Wait()
	return views
}

// ErrGone is the error of a Break of a hold that a quorum does not have.
var ErrGone = errors.New("hold is gone")

// Break makes a hold unrenewable on every master, and returns when a quorum does not have it any more: its process has
// given it back, or it has expired. At once, and for a waiter, that is the case at once. A quorum has to carry it out,
// else the error is an *Error. To repeat it is harmless.
func (a *Admin) Break(ctx context.Context, name, hold string, by wire.Breaker, atOnce bool) error {
	for first, pause := true, breakPoll; ; first, pause = false, min(2*pause, breakPollMost) {
		answers, err := a.breakOnAll(ctx, name, hold, by, atOnce)
		switch {
		case err == nil:
		case !first && ctx.Err() != nil: // a quorum has broken it, and only the wait has ended
			return errs.Cause(ctx)
		default:
			return err
		}
		gone, found := 0, false
		for _, reply := range answers {
			if reply.Broken != wire.BreakStands {
				gone++
			}
			found = found || reply.Broken != wire.BreakGone
		}
		switch {
		case first && !found:
			return ErrGone
		case gone >= a.quorum():
			return nil
		}
		// Its process may give the hold back at any moment, and only waiters get a message.
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return errs.Cause(ctx)
		case <-a.Life.Done():
			return lockerr.ErrClosed
		}
	}
}

// How often Break asks whether the hold still stands.
const (
	breakPoll     = 20 * time.Millisecond
	breakPollMost = 500 * time.Millisecond
)

// breakOnAll runs the script on every master and returns the answers of at least a quorum.
func (a *Admin) breakOnAll(
	ctx context.Context, name, id string, by wire.Breaker, atOnce bool,
) (answers []wire.BreakReply, err error) {
	key := a.Keys.Of(name)
	request := wire.Break{Hold: id, AtOnce: atOnce, Late: wire.FormatMillis(hold.Lateness), By: by}
	type answer struct {
		reply wire.BreakReply
		err   error
	}
	all, open := askAll(a, func(m *transport.Master) (got answer) {
		bounded, cancel := context.WithTimeout(ctx, a.Timeout)
		defer cancel()
		keys, vote := a.Keys.ForCall(nil, key), m.Vote(a.Proposal())
		_, breaks := a.Scripts(m)
		r, sent := m.Do(bounded, 0, breaks, keys, vote, request.Args(nil))
		if got.reply, got.err = wire.ReadBreak(r); got.err != nil && bounded.Err() != nil {
			got.err = &transport.NoReply{After: a.Clock.Now().Mono - sent.Mono}
		}
		if got.reply.More == wire.MoreAdmits {
			a.GoOn(m, key, got.reply.More)
		}
		return got
	})
	if !open {
		return nil, lockerr.ErrClosed
	}
	failed := &lockerr.Error{Op: lockerr.OpBreak, Unknown: true, Name: name, Need: a.quorum()}
	for i, m := range a.Masters {
		if err := all[i].err; err != nil {
			failed.Nodes = append(failed.Nodes, lockerr.OfMaster(m, key, m.Explain(err)))
		} else {
			answers = append(answers, all[i].reply)
		}
	}
	if failed.Got = len(answers); failed.Got >= failed.Need {
		return answers, nil
	}
	if ctx.Err() != nil {
		failed.Err = errs.Cause(ctx)
	}
	failed.Kind, _ = failed.Nodes.Refusal(a.Masters)
	return nil, failed
}

// InUse returns an error that names a key of the prefix that some master has.
func (a *Admin) InUse(ctx context.Context) error {
	for i, m := range a.Masters {
		shards, _, err := m.Shards()
		if err != nil {
			return err
		}
		for _, shard := range shards {
			keys, cursor := []string(nil), uint64(0)
			for more := true; more; more = cursor != 0 {
				if keys, cursor, err = shard.Scan(ctx, a.Keys.AnyPattern(), cursor); err != nil {
					return fmt.Errorf("master %d (%s) does not list its keys: %w", i, m.Addr(), err)
				}
				if len(keys) > 0 {
					return fmt.Errorf("master %d (%s) has the key %q: it is not new", i, m.Addr(), keys[0])
				}
			}
		}
	}
	return nil
}

// AskEviction asks a server that answers for the first time whether it evicts keys, because nothing else reports an
// eviction. It waits for no answer. A server whose node is made again is reported once.
func (a *Admin) AskEviction(n *transport.Node) {
	a.Spawn(func() {
		ctx, cancel := context.WithTimeout(a.Life, a.AskTimeout)
		defer cancel()
		policy, limited, known := n.EvictionPolicy(ctx)
		if !known || policy == noEviction {
			return
		}
		if _, told := a.evicting.LoadOrStore(n.Addr(), true); told {
			return
		}
		message := "server may evict locks; set its maxmemory-policy to noeviction"
		if !limited {
			message = "server would evict locks if its memory were limited; set its maxmemory-policy to noeviction"
		}
		a.Warn(message, slog.String("master", n.Addr()), slog.String("policy", policy))
	})
}

// noEviction is the policy under which a server refuses writes and evicts no key.
const noEviction = "noeviction"
