package transport

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// sender is a goroutine that sends batch after batch of its pipeline, and waits for the answers to one before it takes
// the next. It lives as long as the node, and so does what it needs for a batch: no other goroutine sees its arrays.
type sender struct {
	p        *pipeline
	sending  context.Context
	batch    []Call
	groups   grouping               // of the batch
	reply    [1]rueidis.RedisResult // to a batch of one call
	replaced []Call                 // of the batch, to be sent again over the connection that was opened meanwhile
	lag      *Unreplicated          // why the last batch does not count; a pipeline with replicas has one sender

	// The context of the batches, which timer ends after the batch timeout: it must show no deadline. A callee may look
	// at it after its call, so it is never reset: after an end comes a new one.
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer
}

func (s *sender) run() {
	defer s.stop()
	for s.p.n.life.Err() == nil {
		if s.p.n.inFlight.Load() >= groupLeast {
			runtime.Gosched() // so that goroutines that are ready to run add their calls
		}
		batch, renews, later := s.p.take(s.batch[:0])
		if len(batch) == 0 {
			if !s.rest(later) {
				return
			}
			continue
		}
		s.p.n.inFlight.Add(int64(len(batch)))
		s.send(batch)
		s.p.n.inFlight.Add(-int64(len(batch)))
		clear(batch)
		s.batch, s.reply[0] = batch, rueidis.RedisResult{}
		if renews {
			s.p.mu.Lock()
			s.p.renewing = false
			s.p.mu.Unlock()
		}
	}
}

// stop frees the context of the batches.
func (s *sender) stop() {
	if s.ctx != nil {
		s.timer.Stop()
		s.cancel()
	}
}

// rest waits until the sender is called, or until later. It returns false at the end of the node.
func (s *sender) rest(later time.Duration) bool {
	var retry <-chan time.Time
	if later < clock.Never {
		timer := time.NewTimer(later)
		defer timer.Stop()
		retry = timer.C
	}
	select {
	case <-s.p.wake:
		return true
	case <-retry:
		s.p.mu.Lock()
		s.p.idle--
		s.p.mu.Unlock()
		return true
	case <-s.p.n.life.Done():
		return false
	}
}

// send sends the batch, and sends the calls that did not run once more in another mode.
func (s *sender) send(batch []Call) {
	if timeout := s.p.n.m.cfg.BatchTimeout; s.ctx == nil {
		s.ctx, s.cancel = context.WithCancel(s.sending)
		s.timer = time.AfterFunc(timeout, s.cancel)
	} else {
		s.timer.Reset(timeout)
	}
	ctx := s.ctx
	defer func() {
		if !s.timer.Stop() {
			s.ctx = nil // its end is not ours any more
		}
	}()
	if s.lag != nil && !s.hasCaughtUp(ctx) {
		now := s.p.n.m.cfg.Clock.Now()
		for _, c := range batch {
			c.To.Receive(rueidis.NewErrorResult(&NotSent{Cause: s.lag}), now)
		}
		return
	}
	inSet := func(c Call) bool { return c.AllOrNone != nil }
	if !s.p.replicates && !s.p.n.separated.Load() && slices.ContainsFunc(batch, inSet) {
		defer s.groups.clear()
		batch = s.groups.ofSets(s.p.n.m, batch)
	}
	if len(batch) >= groupLeast && !s.p.replicates {
		defer s.groups.clear()
		batch = s.groups.of(s.p.n, batch)
	}
	for unsent := (parcels{{calls: batch}}); len(unsent) > 0; {
		var again parcels
		for _, parcel := range unsent {
			s.exchange(ctx, parcel, &again)
		}
		unsent = again
	}
	if len(s.replaced) > 0 {
		s.p.sendAgain(s.replaced)
		s.replaced = nil
	}
}

// repeats reports whether a call whose connection was replaced is sent again, and keeps it for that.
func (s *sender) repeats(c Call) bool {
	cfg := s.p.n.m.cfg
	now := cfg.Clock.Now().Mono
	if c.until == 0 {
		c.until = now + cfg.SlowCallAfter
	}
	if to, may := c.To.(Repeater); !may || now > c.until || !to.Repeats() {
		return false
	}
	s.p.n.answered()
	s.replaced = append(s.replaced, c)
	return true
}

// Acquires and releases of a batch are one call, a group: half of what a lock costs a server is the overhead of calls.
// The script does only the common case of each member. The others are sent again alone, as without groups. A group
// whose call fails has run, or not, as a single call that fails. In a Cluster each lock has a slot of its own, and
// there are no groups.
//
// Callers of Do are gathered to a batch while the first of them yields once to the goroutines that are ready to run. So
// no call waits for the answer to another one, and a lone call waits for nothing.

const (
	groupMost    = 64  // members: half a millisecond of the server's time
	groupLeast   = 4   // members for which it is worth it, as a member that is left costs a round trip
	ungroupedFor = 256 // calls after a group of which most were left: the locks of the process are contended then
)

// AllOrNone is common to the acquires of one caller that needs all of these locks or none. Those of one batch are a
// group of their own. If a writer has one of the locks, that one is refused, and so is what is not taken for its sake.
type AllOrNone struct {
	Before bool // takes what comes before that lock
}

// errLeft is the result of a member that did not run.
var errLeft = errors.New("to be sent alone")

// joins reports whether a call may be a member of a group: those that cannot be the common case are not. A release may
// be that leaves a tombstone where the hold is not there: then the group leaves it, and it is sent again alone.
func (s *Script) joins(args []string) bool {
	if s.group == nil || s.name == scripts.Release {
		return s.group != nil && len(args) <= 2
	}
	return wire.Asked(args).IsPlain()
}

// grouping makes the groups of a batch. Its arrays serve batch after batch of a sender: the client copies the keys and
// the arguments into its commands.
type grouping struct {
	releases, acquires []*Call
	calls              []Call         // with groups in place of their members
	asked              map[string]int // the acquires of each lock
	text               []string       // keys and arguments of the groups
}

// clear forgets the calls of the batch.
func (g *grouping) clear() {
	clear(g.releases)
	clear(g.acquires)
	clear(g.calls)
	clear(g.asked)
	clear(g.text)
	g.releases, g.acquires, g.calls, g.text = g.releases[:0], g.acquires[:0], g.calls[:0], g.text[:0]
}

// room returns an empty slice with room for so many texts.
func (g *grouping) room(n int) []string {
	at := len(g.text)
	if cap(g.text)-at < n {
		g.text, at = make([]string, 0, max(n, 2*cap(g.text))), 0 // earlier groups keep the array before
	}
	g.text = g.text[:at+n]
	return g.text[at : at : at+n]
}

// ofSets returns the calls of a batch with groups in place of the members of sets.
func (g *grouping) ofSets(m *Master, calls []Call) (all []Call) {
	var set []*Call
	end := func() {
		if len(set) > 1 {
			all, set = append(all, g.group(m, set)), nil
		}
		for _, c := range set {
			all = append(all, *c)
		}
		set = nil
	}
	for i := range calls {
		c := &calls[i]
		if len(set) > 0 && (c.AllOrNone != set[0].AllOrNone || len(set) == groupMost) {
			end()
		}
		if c.AllOrNone != nil && c.Script.joins(c.Args) && (len(set) == 0 || c.like(set[0])) {
			set = append(set, c)
		} else {
			all = append(all, *c)
		}
	}
	end()
	return all
}

// of returns the calls of a batch with groups in place of their members. A group has releases and then acquires, and
// comes before other acquires, which may be for what it releases. Without a group the calls keep their order.
//
// Several acquires of one lock are in no group. The group would pass an earlier one of them, and one that it leaves
// would arrive a round trip after a later one.
func (g *grouping) of(n *Node, calls []Call) []Call {
	g.count(calls)
	fits := func(c *Call, members []*Call) bool { return len(members) == 0 || c.like(members[0]) }
	for i := range calls {
		switch c := &calls[i]; {
		case !c.Script.joins(c.Args) || c.AllOrNone != nil || !fits(c, g.releases) || !fits(c, g.acquires),
			g.asked[c.Keys[0]] > 1 && c.Script.name == scripts.Acquire:
			g.calls = append(g.calls, *c)
		case c.Script.name == scripts.Release:
			g.releases = append(g.releases, c)
		default:
			g.acquires = append(g.acquires, c)
		}
	}
	g.releases = append(g.releases, g.acquires...)
	members := g.releases
	if len(members) < groupLeast || !n.groups(len(members)) {
		return calls
	}
	at := slices.IndexFunc(g.calls, func(c Call) bool { return c.Script.name == scripts.Acquire || c.members != nil })
	if at < 0 {
		at = len(g.calls)
	}
	for part := range slices.Chunk(members, groupMost) {
		if len(part) < groupLeast {
			for _, c := range part {
				g.calls = append(g.calls, *c)
			}
		} else {
			g.calls = slices.Insert(g.calls, at, g.group(n.m, part))
			at++
		}
	}
	return g.calls
}

// count counts the acquires of each lock.
func (g *grouping) count(calls []Call) {
	if g.asked == nil {
		g.asked = make(map[string]int)
	}
	for i := range calls {
		c := &calls[i]
		for _, member := range c.members {
			g.asked[member.Keys[0]]++
		}
		if c.Script.name == scripts.Acquire {
			g.asked[c.Keys[0]]++
		}
	}
}

// like reports whether two calls may be members of one group: they have the same vote but for the proposal, and two
// acquires have the same terms.
func (c *Call) like(other *Call) bool {
	a, b, acquires := c.Vote, other.Vote, c.Script.name == scripts.Acquire && other.Script.name == scripts.Acquire
	a.Proposal, b.Proposal = 0, 0
	return a == b && c.Script.salt == other.Script.salt && (!acquires || wire.Asked(c.Args).IsLike(other.Args))
}

// group returns the call of a group with these members.
func (g *grouping) group(m *Master, members []*Call) Call {
	keys, args := g.room(len(members)+1), append(g.room(2+2*len(members)), "", "")
	acquires, queues := 0, false
	for _, c := range members {
		keys, args = append(keys, c.Keys[0]), append(args, c.Args[0])
		if c.Script.name == scripts.Acquire {
			args[1], queues = c.Args[1], m.cfg.Quarantine == 0 && wire.Asked(c.Args).Queues()
			acquires++
		}
	}
	switch set := members[0].AllOrNone; {
	case set == nil:
		args[0] = strconv.Itoa(len(members) - acquires)
		if queues {
			args[0] += string(wire.ByArrival)
		}
	case set.Before:
		args[0] = "before"
	default:
		args[0] = "none"
	}
	if m.cfg.Quarantine > 0 {
		keys = append(keys, m.cfg.MarkerKey)
		for _, c := range members[len(members)-acquires:] {
			args = append(args, c.Vote.ProposalArg())
		}
	}
	vote := members[0].Vote
	vote.Proposal = 0
	return Call{Script: members[0].Script.group, Keys: keys, Vote: vote, Args: args, members: members}
}

// parcel is what is sent together, in one mode.
type parcel struct {
	mode  sendMode
	calls []Call
}

type parcels []parcel

func (all *parcels) add(mode sendMode, calls ...Call) {
	for i, parcel := range *all {
		if parcel.mode == mode {
			(*all)[i].calls = append(parcel.calls, calls...)
			return
		}
	}
	*all = append(*all, parcel{mode, calls})
}

// exchange sends the calls together and completes each with its reply. Calls that have to be sent again are added to
// again.
func (s *sender) exchange(ctx context.Context, now parcel, again *parcels) {
	p, m := s.p, s.p.n.m
	sent, dials := m.cfg.Clock.Now(), m.Dials()
	complete := func(c *Call, r rueidis.RedisResult) {
		if r.NonRedisError() == errLeft {
			again.add(sendMode{}, *c)
			return
		}
		// An answer of one of several masters may have come over a connection that was opened since the request was sent.
		replaced := m.cfg.Quarantine > 0 && r.NonRedisError() == nil && m.Dials() != dials
		if replaced && s.repeats(*c) {
			return
		}
		if err := r.Error(); err != nil {
			mode, then := p.n.next(now.mode, err, !p.replicates)
			switch {
			case then == resend:
				again.add(mode, *c)
				return
			case then == split && c.split != nil:
				p.n.separate(err)
				again.add(mode, c.split()...)
				return
			}
		}
		if ctx.Err() != nil && r.NonRedisError() != nil {
			r = rueidis.NewErrorResult(&NoReply{After: m.cfg.Clock.Now().Mono - sent.Mono})
		}
		r = p.n.nameFailure(ctx, r, sent)
		if err := lackOfAnswer(r); err != nil {
			p.n.unanswered(err)
		} else {
			p.n.answered()
		}
		if replaced && !c.AnyServer {
			r = rueidis.NewErrorResult(errReconnected)
		}
		c.To.Receive(r, sent)
	}
	for i, r := range s.roundTrip(ctx, now.calls, now.mode, dials) {
		c := &now.calls[i]
		if c.members == nil || kindOf(r.Error()) == unknownScript && !now.mode.source {
			complete(c, r)
			continue
		}
		divide(p.n, r, c.members, complete)
	}
}

// divide completes the members of a group with their results. A server that refuses it has run nothing of it.
func divide(n *Node, r rueidis.RedisResult, members []*Call, complete func(*Call, rueidis.RedisResult)) {
	kind, left := kindOf(r.Error()), 0
	if kind == crossSlot {
		n.separate(r.Error())
	}
	parts, _ := r.ToArray()
	for i, c := range members {
		its, isLeft := r, kind != notRefused
		if len(parts) == len(members) {
			its = rueidis.NewResult(parts[i], nil)
		}
		if len(parts) == len(members) && parts[i].IsString() { // else it is mostly a number
			line, _ := parts[i].ToString()
			isLeft = isLeft || line == ""
		}
		if isLeft {
			its = rueidis.NewErrorResult(errLeft)
			left++
		}
		complete(c, its)
	}
	if 2*left > len(members) {
		n.ungrouped.Store(ungroupedFor)
	}
}

// lackOfAnswer returns why the server has not answered. It returns nil for a refusal, and if only the replicas are too
// few.
func lackOfAnswer(r rueidis.RedisResult) error {
	err := r.NonRedisError()
	if short, ok := err.(*Unreplicated); ok {
		if _, refused := refusalOf(short.Err); refused {
			return nil
		}
		return short.Err
	}
	return err
}

func (s *sender) roundTrip(ctx context.Context, batch []Call, mode sendMode, dials uint64) []rueidis.RedisResult {
	p := s.p
	if p.replicates {
		return s.roundTripReplicated(ctx, batch, mode, dials)
	}
	client := p.n.client
	if mode.routed {
		client = p.n.m.client
		defer p.n.answeredByOther()
	}
	if len(batch) == 1 { // the client keeps no array of it, whose use by a late answer it would have to await
		s.reply[0] = client.Do(ctx, s.command(client.B(), &batch[0], mode, dials))
		return s.reply[:]
	}
	return client.DoMulti(ctx, s.commands(client, batch, mode, dials)...)
}

func (s *sender) commands(client rueidis.Client, batch []Call, mode sendMode, dials uint64) rueidis.Commands {
	b := client.B()
	commands := make(rueidis.Commands, len(batch), len(batch)+1)
	for i := range batch {
		commands[i] = s.command(b, &batch[i], mode, dials)
	}
	return commands
}

func (s *sender) command(b rueidis.Builder, c *Call, mode sendMode, dials uint64) rueidis.Completed {
	vote := c.Vote
	if s.p.n.m.cfg.Quarantine > 0 {
		vote = s.p.n.m.current(vote, dials)
	}
	return c.Script.command(b, mode, s.p.n.declared(c.Script, mode, c.Keys), vote, c.Args)
}

// A call whose answer counts only with replicas is sent over a separate connection, followed by WAIT: WAIT covers the
// writes of the connection on which it is sent, and blocks the commands after it on that connection. Such calls are
// collected while one batch is in flight, and one WAIT confirms the next batch. So a slow replica costs its delay once
// for all of them, and costs nothing for calls that need no replicas.
//
// Missing replicas cost that delay once. After a batch that they have not confirmed, the next batch is not sent until a
// short WAIT shows that they have caught up with it. A master without its replicas then counts as down. In a quorum, a
// master that answered late would be worse, because split votes wait for its answer.

// Unreplicated is the answer to a call that has run, but that fewer replicas than needed have confirmed in time. The
// replicas may have the write, or may still get it.
type Unreplicated struct {
	Need, Got int
	After     time.Duration       // how long the replicas had to confirm
	Err       error               // why the server did not report the replicas; nil if they were too few
	Reply     rueidis.RedisResult // to the call itself
}

func (e *Unreplicated) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("number of replicas unknown, %d required: %v", e.Need, e.Err)
	}
	return fmt.Sprintf("%d of %d required replicas confirmed it in %v", e.Got, e.Need, e.After)
}

// hasCaughtUp reports whether the replicas have the writes of the last batch, if they had not confirmed them in time.
// It sends WAIT once more with a short timeout, which an idle server extends to a tenth of a second. If the server does
// not report, the next batch finds the reason.
func (s *sender) hasCaughtUp(ctx context.Context) bool {
	client, need := s.p.n.client, int64(s.lag.Need)
	got, err := client.Do(ctx, client.B().Wait().Numreplicas(need).Timeout(1).Build()).AsInt64()
	if err == nil && got < need {
		return false
	}
	s.lag = nil
	return true
}

// roundTripReplicated sends the calls, followed by WAIT on the same connection. Calls that another server may have to
// answer are sent one by one, each with its own WAIT.
func (s *sender) roundTripReplicated(
	ctx context.Context, batch []Call, mode sendMode, dials uint64,
) (results []rueidis.RedisResult) {
	if client := s.p.n.client; !mode.routed && !mode.lockOnly && (s.p.n.direct || !s.p.n.m.cluster) {
		results, s.lag = s.confirmed(client.DoMulti(ctx, append(s.commands(client, batch, mode, dials), s.wait(client))...))
		return results
	}
	for _, c := range batch {
		results = append(results, s.roundTripOfOne(ctx, c, mode, dials))
	}
	return results
}

func (s *sender) roundTripOfOne(ctx context.Context, c Call, mode sendMode, dials uint64) (r rueidis.RedisResult) {
	first := func(results []rueidis.RedisResult) rueidis.RedisResult {
		results, _ = s.confirmed(results)
		return results[0]
	}
	client := s.p.n.client
	if mode.to != "" {
		defer s.p.n.answeredByOther()
		if client = s.p.n.m.client.Nodes()[mode.to]; client == nil {
			s.p.n.m.suspect()
			return rueidis.NewErrorResult(&NotSent{Cause: fmt.Errorf("not connected to %s, which has the slot", mode.to)})
		}
	}
	commands := append(s.commands(client, []Call{c}, mode, dials), s.wait(client))
	switch {
	case mode.asking:
		asking := client.B().Arbitrary("ASKING").Build()
		return first(client.DoMulti(ctx, append(rueidis.Commands{asking}, commands...)...)[1:])
	case mode.to == "" && !s.p.n.direct && s.p.n.m.cluster:
		// The client decides which server answers, and a redirection would separate the call from its WAIT. A dedicated
		// client follows no redirection.
		_ = client.Dedicated(func(dedicated rueidis.DedicatedClient) error {
			r = first(dedicated.DoMulti(ctx, commands...))
			return nil
		})
		return r
	default:
		return first(client.DoMulti(ctx, commands...))
	}
}

func (s *sender) wait(client rueidis.Client) rueidis.Completed {
	cfg := s.p.n.m.cfg
	return client.B().Wait().Numreplicas(int64(cfg.Replicas)).Timeout(cfg.ReplicaTimeout.Milliseconds()).Build()
}

// confirmed removes the reply to WAIT from the results. If too few replicas have confirmed, it replaces the replies of
// calls that have run by Unreplicated, and returns lag, which has no call's reply.
func (s *sender) confirmed(results []rueidis.RedisResult) (replies []rueidis.RedisResult, lag *Unreplicated) {
	cfg, last := s.p.n.m.cfg, len(results)-1
	got, err := results[last].AsInt64()
	results = results[:last]
	if err == nil && got >= int64(cfg.Replicas) {
		return results, nil
	}
	short := Unreplicated{Need: cfg.Replicas, Got: int(got), After: cfg.ReplicaTimeout, Err: err}
	for i, r := range results {
		if r.Error() == nil {
			its := short
			its.Reply = r
			results[i] = rueidis.NewErrorResult(&its)
		}
	}
	if err != nil {
		return results, nil
	}
	return results, &short
}
