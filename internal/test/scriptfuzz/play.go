package scriptfuzz

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/scripts"
)

const (
	lockKey   = "fencelock:{n}"
	markerKey = "fencelock:master"
	anyServer = "SERVER" // stands for the name of the server's process in a message
)

var lockKeys = []string{lockKey, lockKey + ":h", lockKey + ":q", lockKey + ":x"}

// dumpScript returns all keys of the lock: the hash, the zsets, and what is left of each.
const dumpScript = `
local r = {redis.call('HGETALL', KEYS[1])}
for i = 2, 4 do r[i] = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES') end
for i = 1, 4 do r[4 + i] = redis.call('PTTL', KEYS[i]) end
r[9] = redis.call('DBSIZE')
return r`

// Player plays sequences on a server. Its methods must not be called at the same time.
type Player struct {
	client  rueidis.DedicatedClient
	end     func()
	stand   func(at time.Time)
	runner  Runner
	now     Scripts
	older   Scripts // which calls may run instead; nil for none
	dump    string  // digest
	process string  // run id of the server
	seen    Coverage

	mu    sync.Mutex
	heard []string

	// Of the sequence that is played.
	m        *lock
	marker   *marker
	us       int64
	latest   int64 // that the clock was set to
	wentBack bool
	passed   int64   // how many milliseconds may pass between a call and the reading of the keys
	lost     [3]bool // of the zsets: a part of it may be missing
	strays   bool    // the zsets have members without records
	voted    bool    // the last call that lets waiters in had the master's vote
	byOlder  bool    // the step runs the scripts of the earlier release
	log      []string
}

// NewPlayer returns a player for a server. It sets the server's clock with stand, which makes the clock stand still. It
// deletes everything that is on the server. If runner is not nil, it runs the scripts instead of the server. If older
// is not nil, each call of the sequences that are drawn runs either the present script or that one.
func NewPlayer(client rueidis.Client, stand func(at time.Time), runner Runner, older Scripts) (*Player, error) {
	p := &Player{stand: stand, runner: runner, now: maps.Collect(scripts.All()), older: older, seen: Coverage{}}
	if runner == nil {
		p.runner = &scriptCache{p.do, map[string]string{}}
	}
	p.client, p.end = client.Dedicate()
	p.client.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.heard = append(p.heard, m.Message)
	}})
	var errs []error
	do := func(args ...string) any {
		reply, err := p.do(args...)
		errs = append(errs, err)
		return reply
	}
	for _, c := range []rueidis.Completed{
		p.client.B().Subscribe().Channel(heardRoute[1:]).Build(),
		p.client.B().Ssubscribe().Channel(shardedRoute[1:]).Build(),
	} {
		errs = append(errs, p.client.Do(context.Background(), c).Error())
	}
	p.dump, _ = do("SCRIPT", "LOAD", dumpScript).(string)
	info, _ := do("INFO", "server").(string)
	_, run, _ := strings.Cut(info, "run_id:")
	p.process, _, _ = strings.Cut(run, "\r")
	if err := errors.Join(errs...); err != nil {
		p.end()
		return nil, err
	}
	return p, nil
}

// Close ends the player's connection.
func (p *Player) Close() { p.end() }

// Seen returns what the player has seen so far.
func (p *Player) Seen() Coverage { return p.seen }

func (p *Player) do(args ...string) (any, error) {
	return p.client.Do(context.Background(), p.client.B().Arbitrary(args...).Build()).ToAny()
}

// Play plays a sequence and returns the first difference between the server and the model.
func (p *Player) Play(s Sequence) error {
	if err := p.begin(s); err != nil {
		return err
	}
	for _, one := range s.steps {
		if err := p.step(one); err != nil {
			return err
		}
	}
	return p.finish()
}

func (p *Player) begin(s Sequence) error {
	p.m, p.latest, p.wentBack, p.lost, p.strays, p.log = newLock(s.Several), 0, false, [3]bool{}, false, nil
	p.byOlder = false
	p.marker = newMarker(p.process)
	p.setClock(s.Start)
	p.take()
	_, err := p.do("FLUSHALL")
	return err
}

func (p *Player) setClock(us int64) {
	p.us, p.latest = us, max(p.latest, us)
	p.stand(time.UnixMicro(us))
}

// step takes one step and compares.
func (p *Player) step(s step) error {
	p.byOlder = s.Older && p.older != nil
	var err error
	switch s.Do {
	case doJump:
		err = p.jump(s.Us)
	case doLose:
		err = p.lose(s.Key)
	case doRestart:
		err = p.restart()
	case string(scripts.Marker):
		err = p.callMarker(*s.Marker)
	default:
		err = p.call(s)
	}
	if err != nil || s.Quiet {
		return err
	}
	return p.compare()
}

// Trace returns what the last steps were, with the replies.
func (p *Player) Trace(last int) string {
	return strings.Join(p.log[max(0, len(p.log)-last):], "\n")
}

func (p *Player) note(format string, args ...any) {
	p.log = append(p.log, fmt.Sprintf("[%d] ", p.us)+fmt.Sprintf(format, args...))
}

// run runs a script. The first argument of most is the vote; alone names the lock twice.
func (p *Player) run(s step, args []any) ([]any, error) {
	name := scripts.Name(s.Do)
	keys := lockKeys[:1]
	if name == scripts.Renew {
		keys = slices.Repeat(keys, len(s.Others))
	}
	if s.Alone && !p.m.several && len(keys) == 1 {
		keys = slices.Repeat(keys, 2)
	}
	vote := "0"
	if p.m.several {
		keys = append(slices.Clone(keys), markerKey)
		vote = p.voteText(s.Vote)
	}
	switch name {
	case scripts.Group:
		return runGroup(p, s, vote)
	case scripts.Inspect:
		args = nil
	default:
		args = WithVote(name, any(vote), args)
	}
	return p.send(name, keys, args)
}

func (p *Player) send(name scripts.Name, keys []string, args []any) ([]any, error) {
	texts := make([]string, len(args))
	for i, a := range args {
		texts[i] = fmt.Sprint(a)
	}
	version, which := p.now, ""
	if p.byOlder && p.older[name] != "" {
		version, which = p.older, "older "
	}
	got, err := p.runner.Run(version[name], keys, texts)
	p.note("%s%s %q -> %v", which, name, args, got)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	fields, ok := Fields(InFull(name, texts, got))
	if ok && name == scripts.Renew {
		fields, ok = Renewed(fields, len(args)/2-1)
	}
	if !ok {
		return nil, fmt.Errorf("%s replies %v", name, got)
	}
	return fields, nil
}

func (p *Player) voteText(v *voteArg) string {
	seen, check := "-", 0
	if v.Seen != "-" {
		seen = p.seenMarker(v)
	}
	if v.Check {
		check = 1
	}
	return fmt.Sprintf("%016d %s %d %d", p.us+v.Ahead, seen, fuzzed.quarantine, check)
}

func (p *Player) seenMarker(v *voteArg) string {
	switch {
	case v.Seen == "now" && p.marker.id != "":
		return p.marker.id
	case v.Seen == "-":
		return "-"
	default:
		return "S0:older:0"
	}
}

// token returns the token that a step names: below those that a script cannot represent, also if the step comes again.
func (p *Player) token(s step, of int) int64 {
	return min(max(p.m.tokens[holdID(of)]+s.Plus, 1), 1<<52)
}

// call runs a script that a client of the lock sends, and compares its reply.
func (p *Player) call(s step) error {
	if err := p.makeRoom(s); err != nil {
		return err
	}
	args := arguments(p, s)
	v, name := verdict{floor: p.us}, scripts.Name(s.Do)
	if p.m.several && name != scripts.Inspect {
		v = p.marker.vote(p.us, p.us+s.Vote.Ahead, p.seenMarker(s.Vote), s.Vote.Check)
	}
	beyond := p.m.isBeyond(bound)
	got, err := p.run(s, args)
	if err != nil {
		return err
	}
	p.m.begin(p.us, v)
	if settles(name) {
		p.voted = v.code == 0
	}
	want := p.model(s, got)
	p.seen.note(s.seenAs(), got)
	p.forgetProcesses()
	if beyond || p.m.hasPassedBounds() {
		if name == scripts.Release && number(got[1]) == 0 {
			return nil // it has not read the clock, so it has purged nothing
		}
		if name == scripts.Release || name == scripts.Refresh {
			return p.settle(number(got[2]), p.ahead(s))
		}
		if name == scripts.Acquire || name == scripts.Break {
			return p.settle(1, p.ahead(s))
		}
	}
	if p.strays {
		want = withStrays(name, want)
	}
	if name == scripts.Refresh && number(got[2])&1 == 0 {
		clear(p.m.ended) // all that had expired has been purged
	}
	if !matches(want, got) {
		return fmt.Errorf("%s answers %v, the model %v", name, got, want)
	}
	return nil
}

// forgetProcesses forgets what is kept of processes while a hold waits.
func (p *Player) forgetProcesses() {
	if len(p.m.queue) == 0 {
		clear(p.m.wakened)
	}
}

// makeRoom has refresh do what the next call could not do alone, where the reply of that call would depend on it.
func (p *Player) makeRoom(s step) error {
	limit := bound
	switch scripts.Name(s.Do) {
	case scripts.Acquire:
		if s.Order == "0" {
			limit = singleBound
		}
	case scripts.Join, scripts.Yield, scripts.Regain, scripts.Break:
	default:
		return nil
	}
	p.m.us = p.us
	if !p.m.isBeyond(limit) && (limit == bound || !p.m.isBeyond(bound) || len(p.m.queue) == 0) {
		return nil
	}
	return p.settle(1, 0)
}

// goodVote is the vote on a call by a client that has read the marker, with a proposal that is so far ahead.
func (p *Player) goodVote(ahead int64) verdict {
	if p.m.several {
		return p.marker.vote(p.us, p.us+ahead, p.marker.id, false)
	}
	return verdict{floor: p.us}
}

// ahead is how far the proposal of the call that ran is ahead, if it let waiters in. The model lets all waiters in at
// once, and the scripts by several calls.
func (p *Player) ahead(s step) int64 {
	if !p.m.several || !p.voted {
		return 0
	}
	return s.Vote.Ahead
}

// settle goes on with what a call has left, as its reply says, with a proposal that is so far ahead.
func (p *Player) settle(more, ahead int64) error {
	if more&1 == 1 {
		p.m.begin(p.us, p.goodVote(ahead))
		p.voted = p.m.verdict.code == 0
		p.m.refresh(nil, "-")
		p.forgetProcesses()
	}
	for range 100 {
		if more&1 == 0 {
			clear(p.m.ended)
			return nil
		}
		got, err := p.run(step{Do: string(scripts.Refresh), Vote: &voteArg{Seen: "now", Ahead: ahead}}, []any{"-"})
		if err != nil {
			return err
		}
		p.seen.note(scripts.Refresh, got)
		more = number(got[2])
	}
	return errors.New("there is more to do for ever")
}

func flag(is bool) int {
	if is {
		return 1
	}
	return 0
}

// settles reports whether a script lets waiters in.
func settles(name scripts.Name) bool {
	return name != scripts.Renew && name != scripts.Raise && name != scripts.Inspect && name != scripts.Group
}

// withStrays leaves out of a reply what members without records may change: times, and the holder that is named.
func withStrays(name scripts.Name, want any) any {
	switch want := want.(type) {
	case oneOf:
		return withStrays(name, want[0])
	case reply:
		if name == scripts.Acquire && len(want) == 8 {
			return reply{want[0], want[1], unknown{}, want[3], unknown{}, unknown{}, unknown{}, unknown{}}
		}
		if name == scripts.Refresh {
			want[1] = unknown{}
		}
	}
	return want
}

func matches(want, got any) bool {
	switch want := want.(type) {
	case unknown:
		return true
	case oneOf:
		return slices.ContainsFunc(want, func(one any) bool { return matches(one, got) })
	case reply:
		list, ok := got.([]any)
		return ok && slices.EqualFunc(want, list, matches)
	default:
		return want == got
	}
}

func (p *Player) callMarker(c markerCall) error {
	c.Terms = strings.ReplaceAll(c.Terms, thisProcess, p.process)
	of := fuzzed
	if c.Old {
		of.quarantine = 0
	}
	args := []any{c.Purpose, of.layout, of.rules, c.Set, c.Seat, of.seats, of.quarantine, c.Terms, c.Of}
	got, err := p.send(scripts.Marker, []string{markerKey}, args)
	if err != nil {
		return err
	}
	p.seen.add("marker: " + c.Purpose)
	p.marker.given = of
	defer func() { p.marker.given = fuzzed }()
	if want := p.marker.call(p.us, c); !matches(want, got) {
		return fmt.Errorf("marker answers %v, the model %v", got, want)
	}
	return nil
}

// restart leaves the data of another process: the server was replaced, or has restarted from a save.
func (p *Player) restart() error {
	if !p.m.several || p.marker.set == "" {
		return nil
	}
	p.note("restart")
	p.marker.run = "beef" + p.process[4:]
	_, err := p.do("HSET", markerKey, "run", p.marker.run)
	return err
}

// finish ends all holds, lets time go by, and looks at what stays: the counters.
func (p *Player) finish() error {
	for _, in := range [][]*hold{p.m.byExpiry(), slices.Clone(p.m.queue)} {
		for _, h := range in {
			var n int
			if _, err := fmt.Sscanf(h.id, "01%d", &n); err != nil {
				return err
			}
			if err := p.step(step{Do: string(scripts.Release), Hold: n, Vote: &voteArg{Seen: "now"}}); err != nil {
				return err
			}
		}
	}
	for range 3 {
		if err := p.jump(p.latest - p.us + 1_000_000_000); err != nil {
			return err
		}
		if err := p.settle(1, 0); err != nil {
			return err
		}
	}
	return p.onlyCountersStay()
}

// jump steps the clock. Keys may expire at it.
func (p *Player) jump(us int64) error {
	d, err := p.dumped()
	if err != nil {
		return err
	}
	gone := func(i int) bool { return us > 0 && d.left[i] >= 0 && d.left[i] <= us/1000+1 }
	if gone(0) {
		for _, h := range p.m.holds {
			if h.expiry*1000 > p.us+us+1000 { // gone allows for a millisecond
				return fmt.Errorf("the key of the lock would expire before %+v", *h)
			}
		}
		if _, err := p.do(append([]string{"DEL"}, lockKeys...)...); err != nil {
			return err
		}
		p.m.forget()
	}
	lost := !gone(0) && (gone(1) || gone(2) || gone(3))
	for i := range p.lost {
		if lost && gone(i+1) {
			if p.lost[i] = true; i == inHolds {
				p.m.unindex()
			}
			// In its last millisecond the key is still read, but a server may remove it, whenever it looks.
			if _, err := p.do("DEL", lockKeys[i+1]); err != nil {
				return err
			}
		}
	}
	p.note("jump %d", us)
	p.wentBack = p.wentBack || us < 0
	p.setClock(p.us + us)
	p.m.us = p.us
	if _, err = p.dumped(); err == nil && lost { // reading a key that has expired deletes it for good
		err = p.settle(1, 0)
	}
	return err
}

// lose deletes a key of the lock. Nothing that had expired is left before, since a record may outlive its member. A
// lost queue is repaired by the next refresh of a waiter.
func (p *Player) lose(suffix string) error {
	if err := p.settle(1, 0); err != nil {
		return err
	}
	p.note("lose %q", suffix)
	if suffix == loseMarker {
		p.marker = newMarker(p.process)
		_, err := p.do("DEL", markerKey)
		return err
	}
	keys := []string{"DEL", lockKey + suffix}
	if suffix == "" && p.m.several {
		keys = append(keys, lockKeys[1:]...)
	}
	if _, err := p.do(keys...); err != nil {
		return err
	}
	switch suffix {
	case "":
		p.m.forget()
		p.strays = !p.m.several
	case ":h":
		p.lost[inHolds] = true
		p.m.unindex()
	case ":q":
		p.lost[1] = true
		p.m.lackAll()
	case ":x":
		p.lost[2] = true
	}
	return nil
}
