package scriptfuzz

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/seed74116694/fencelock/scripts"
)

// Trace compares the script calls of real clients with the model, in the order in which one server runs them: each
// reply, each message and each key. What else happens on the server is not in the model: a lock that was changed
// without a script, or whose call had more to do than one call does, is compared again once its keys are gone.
type Trace struct {
	names map[string]scripts.Name // by digest
	locks map[string]*tracedLock
	seen  Coverage
	watch func(Change) // or nil
	// How many calls were compared, and why others were not.
	Checked int
	Skipped map[string]int
}

// NewTrace returns a trace of a server. The digest is that of a script's source, as EVALSHA names it.
func NewTrace(digest func(source string) string) *Trace {
	t := &Trace{
		names: map[string]scripts.Name{}, locks: map[string]*tracedLock{}, seen: Coverage{}, Skipped: map[string]int{},
	}
	for name, source := range scripts.All() {
		t.names[digest(source)] = name
	}
	return t
}

// Seen returns the reply codes and messages of the calls that were compared.
func (t *Trace) Seen() Coverage { return t.seen }

// Call is a script call that a server is about to run. Nothing else runs on the server meanwhile.
type Call struct {
	Digest     string
	Source     string // where the call has it: a script may have a comment of its client after it
	Keys, Args []string
	Run        func() (reply any, published []Publication) // the reply may be an error
	Command    func(args ...string) any                    // runs a command before or after the script
}

// Publication is a message that a script has published.
type Publication struct {
	Text      string
	Receivers int64
}

// tracedMost is how many fields a lock may have to be compared: that is done with each call.
const tracedMost = 400

// shown is how many calls the report of a difference has.
const shown = 12

// tracedLock is a lock with its model.
type tracedLock struct {
	*Player
	key    string
	before dump
	alien  string // why its state is not known to the model, or ""
}

// reading is how many milliseconds a busy machine may need to read the keys after a call.
const reading = 10_000

// Check runs the call and returns a difference between the server and the model.
func (t *Trace) Check(c Call) error {
	name, known := t.name(c)
	if !known || len(c.Keys) == 0 {
		c.Run()
		return nil
	}
	if name == scripts.Marker {
		return t.checkMarker(c)
	}
	parts := t.split(name, c)
	marker := &marker{}
	several := name != scripts.Inspect && voteOf(name, c.Args) != "0"
	if several {
		marker = readMarker(c, c.Keys[len(c.Keys)-1])
	}
	now := microsOf(c.Command("TIME"))
	for _, part := range parts {
		part.found, part.known = part.lock.observe(c, now)
	}
	reply, published := c.Run()
	got, ok := Fields(InFull(name, c.Args, reply))
	if ok && name == scripts.Renew {
		got, ok = Renewed(got, len(c.Args)/2-1)
	}
	if !ok {
		t.failed(parts, reply)
		return nil
	}
	if us := microsIn(name, got); us > 0 {
		now = us
	}
	if name == scripts.Group {
		if err := checkSet(c.Args[1], got); err != nil {
			return err
		}
	}
	v := verdict{floor: now}
	if several {
		v = marker.voteOn(now, voteOf(name, c.Args))
	}
	for _, part := range parts {
		l := part.lock
		part.take(got)
		var err error
		compared := l.alien == ""
		if compared {
			l.marker, l.m.several = marker, several || name == scripts.Inspect && l.m.several
			err = l.check(c, part, v, now, published)
			published = nil
		}
		if t.watch != nil && !part.known {
			t.watch(Change{Key: l.key, Crowd: true})
		} else if t.watch != nil {
			if !compared || err != nil || l.alien != "" {
				l.before = l.dump(c)
			}
			t.watch(Change{Key: l.key, Micros: now, Before: part.found.standing(), After: l.before.standing()})
		}
		switch {
		case err != nil:
			l.alien = "a difference"
			return fmt.Errorf("%s %q answers %v: %w\nthe last calls:\n%s", name, c.Args, got, err, l.Trace(shown))
		case compared:
			t.Checked++
		default:
			t.Skipped[l.alien]++
		}
	}
	return nil
}

// name returns which script a call runs.
func (t *Trace) name(c Call) (name scripts.Name, known bool) {
	if name, known = t.names[c.Digest]; known || c.Source == "" {
		return name, known
	}
	for name, source := range scripts.All() {
		if strings.HasPrefix(c.Source, source) {
			t.names[c.Digest] = name
			return name, true
		}
	}
	return "", false
}

// part is a call for one lock: a renewal and a group may be for several.
type part struct {
	lock     *tracedLock
	name     scripts.Name
	args     []string // without the vote
	renewals []int    // of the call, that are for this lock; or members of a group
	members  []member // of a group
	got      []any
	found    dump // what the lock had before the call
	known    bool // found was read
}

// take takes from a reply what is for this lock.
func (p *part) take(got []any) {
	p.got = got
	if p.name == scripts.Renew || p.name == scripts.Group {
		head := flag(p.name == scripts.Renew) // the time
		p.got = slices.Clone(got[:head])
		for _, i := range p.renewals {
			p.got = append(p.got, got[head+i])
		}
	}
}

func (t *Trace) split(name scripts.Name, c Call) (parts []*part) {
	if name == scripts.Inspect {
		return []*part{{lock: t.lock(c.Keys[0]), name: name}}
	}
	args := WithoutVote(name, c.Args)
	if name == scripts.Group {
		return t.groupParts(c, c.Args[0] != "0")
	}
	if name != scripts.Renew {
		return []*part{{lock: t.lock(c.Keys[0]), name: name, args: args}}
	}
	for i := 2; i+1 < len(args); i += 2 {
		lock := t.lock(c.Keys[i/2-1])
		at := slices.IndexFunc(parts, func(p *part) bool { return p.lock == lock })
		if at < 0 {
			at, parts = len(parts), append(parts, &part{lock: lock, name: name, args: slices.Clone(args[:2])})
		}
		parts[at].args = append(parts[at].args, args[i:i+2]...)
		parts[at].renewals = append(parts[at].renewals, i/2-1)
	}
	return parts
}

// voteOf returns the vote among the arguments of a script.
func voteOf(name scripts.Name, args []string) string {
	if at := voteAt(name); at < len(args) {
		return args[at]
	}
	return "0"
}

func (t *Trace) lock(key string) *tracedLock {
	l := t.locks[key]
	if l == nil {
		l = &tracedLock{key: key, Player: &Player{m: newLock(false), seen: t.seen, passed: reading}}
		t.locks[key] = l
	}
	return l
}

// failed notes that a script has failed. It has changed nothing if the server did not know it, or is a replica.
func (t *Trace) failed(parts []*part, reply any) {
	cause, _, _ := strings.Cut(fmt.Sprint(reply), " ")
	t.Skipped[cause]++
	for _, p := range parts {
		if cause != "NOSCRIPT" && cause != "READONLY" {
			p.lock.alien = "a script has failed"
		}
	}
}

// observe compares the keys with those after the last call: another change is not known to the model. Keys that are
// gone have expired, or were deleted. It returns the keys, which it does not read of a crowd.
func (l *tracedLock) observe(c Call, now int64) (d dump, known bool) {
	if number(c.Command("HLEN", l.key)) > tracedMost {
		l.alien = "a crowd"
		return d, false
	}
	d = l.dump(c)
	l.wentBack, l.us = l.wentBack || now < l.us, now
	last := l.before
	switch {
	case len(d.fields) == 0:
		*l.Player = Player{m: newLock(l.m.several), seen: l.seen, us: now, passed: reading}
		l.alien = ""
		for _, scores := range d.scores {
			if len(scores) > 0 {
				l.alien = "keys without the lock"
			}
		}
	case l.alien != "":
	case !maps.Equal(d.fields, last.fields):
		l.alien = "a change without a script"
	default:
		for i := range d.scores {
			switch {
			case len(d.scores[i]) == 0 && len(last.scores[i]) > 0: // it has expired, or was deleted
				l.lose(i, d)
			case !maps.Equal(d.scores[i], last.scores[i]):
				l.alien = "a change without a script"
			}
		}
	}
	if d.foreign {
		l.alien = "a key of another type"
	}
	return d, true
}

// lose notes that an index is gone. Without that of the holds their records decide when they expire, and those that
// have expired and have a record still stand again.
func (l *tracedLock) lose(index int, d dump) {
	l.lost[index] = true
	if index == inQueue {
		l.m.lackAll()
	}
	if index != inHolds {
		return
	}
	l.m.unindexed = true
	for id, r := range d.records {
		h := cmp.Or(l.m.holds[id], l.m.ended[id])
		if r.state != granted || h == nil || id == l.m.writer {
			continue
		}
		if h.expiry = h.latest; l.m.holds[id] == nil {
			l.m.holds[id] = h
			l.m.count(h, 1)
			delete(l.m.ended, id)
		}
	}
}

// dump returns the keys of the lock.
func (l *tracedLock) dump(c Call) dump {
	millis := func(key string) int64 {
		if ms, ok := c.Command("PTTL", key).(int64); ok {
			return ms
		}
		return -2 // the server refuses commands
	}
	raw := []any{c.Command("HGETALL", l.key)}
	left := []any{millis(l.key)}
	keys := int64(0)
	for _, suffix := range []string{":h", ":q", ":x"} {
		raw = append(raw, c.Command("ZRANGE", l.key+suffix, "0", "-1", "WITHSCORES"))
		left = append(left, millis(l.key+suffix))
	}
	foreign := false
	for i := range raw {
		if _, ok := raw[i].([]any); !ok {
			raw[i], foreign = []any{}, true
		}
	}
	for _, ms := range left {
		keys += int64(flag(number(ms) >= 0))
	}
	d := readDump(append(append(raw, left...), keys))
	d.foreign = foreign
	return d
}

// check makes the call in the model, and compares the reply, the messages and the keys.
func (l *tracedLock) check(c Call, one *part, v verdict, now int64, published []Publication) error {
	l.us, l.m.us = now, now
	l.note("%s %q -> %v %v", one.name, one.args, one.got, published)
	l.log = l.log[max(0, len(l.log)-shown):]
	beyond := l.m.isBeyond(bound)
	l.m.begin(now, v)
	l.hear(published)
	if settles(one.name) {
		l.voted = v.code == 0
	}
	want := l.call(one)
	l.forgetProcesses()
	seenAs := one.name
	if one.name == scripts.Acquire && len(one.args) > 3 {
		seenAs = adoption
	}
	l.seen.note(seenAs, one.got)
	if beyond || l.m.hasPassedBounds() {
		l.alien = "more to do than one call does"
		return nil
	}
	if l.strays {
		want = withStrays(one.name, want)
	}
	if one.name == scripts.Refresh && number(one.got[2])&1 == 0 {
		clear(l.m.ended)
	}
	if !matches(want, one.got) {
		return fmt.Errorf("the model answers %v", want)
	}
	l.forgetUnheard()
	l.before = l.dump(c)
	d := l.before
	if l.marker.layout != "" {
		d.keys++
	}
	return l.compareWith(d)
}

// leadingZeros match before a token of 15 digits: the clock in fake time is before 2001.
var leadingZeros = regexp.MustCompile(` 0+(\d{15})\b`)

// hear notes the messages of the call. A grant whose message nobody has received sets the waiter aside, if its route
// says that the server counts the receivers.
func (l *tracedLock) hear(published []Publication) {
	l.m.unheard = map[string]bool{}
	for _, m := range published {
		l.heard = append(l.heard, leadingZeros.ReplaceAllString(m.Text, " $1"))
		id, rest, _ := strings.Cut(m.Text, " ")
		h := l.m.find(id)
		isGrant := strings.Count(rest, " ") >= 3 && !strings.HasPrefix(rest, "broken ")
		if m.Receivers == 0 && isGrant && (h == nil || !strings.HasPrefix(h.route, "b")) {
			l.m.unheard[id] = true
		}
	}
}

// forgetUnheard leaves out the grants that were not received and so not made. The call may have granted the lock to the
// same waiter later, with another token: a yield brings the waiter back that it has just passed over.
func (l *tracedLock) forgetUnheard() {
	l.heard = slices.DeleteFunc(l.heard, func(text string) bool {
		id, rest, _ := strings.Cut(text, " ")
		begin := id + " "
		if strings.Count(rest, " ") >= 3 { // a grant
			token, _, _ := strings.Cut(rest, " ")
			begin += token + " "
		}
		made := slices.ContainsFunc(l.m.sent, func(sent string) bool { return strings.HasPrefix(sent, begin) })
		return l.m.unheard[id] && !made
	})
}

// call makes the call in the model and returns the reply that the script must give.
func (l *tracedLock) call(one *part) any {
	m, args := l.m, one.args
	n := func(i int) int64 {
		if i >= len(args) {
			return 0
		}
		return number(args[i])
	}
	switch one.name {
	case scripts.Acquire:
		r, life := readRequest(args[0], args[1])
		r.adopts = len(args) > 3
		order := queueing(m.several, strings.Join(args[min(2, len(args)):min(3, len(args))], ""))
		return m.acquire(r, life, order, n(3), strings.Join(args[min(4, len(args)):], ""))
	case scripts.Join:
		r := readHold(args[0], args[4])
		r.owner = args[1]
		return m.join(r, n(3), n(5))
	case scripts.Raise:
		return m.raise(args[0], n(1))
	case scripts.Yield:
		return m.yield(args[0], n(1), len(args) > 2)
	case scripts.Break:
		return m.breakHold(args[0], args[1] == "1", n(2), args[3])
	case scripts.Regain:
		return m.regain(readHold(args[0], args[3]), n(1), n(2), args[4] == "1", n(5))
	case scripts.Release:
		others, least := slices.Clone(args[min(3, len(args)):]), minimum{}
		if last := len(others) - 1; last >= 0 && strings.Contains(others[last], " ") {
			parts := append(strings.Fields(others[last]), "0", "0")
			least = minimum{number(parts[0]), number(parts[1]), number(parts[2]), number(parts[3])}
			others = others[:last]
		}
		found := one.got[0] == int64(1) && m.ended[args[0]] != nil
		return m.release(args[0], n(1), n(2) == 1, n(2) == 2, others, least, found)
	case scripts.Group:
		return m.group(one.members, one.got, l.marker.until)
	case scripts.Refresh:
		route := "-"
		if len(args) > 0 {
			route = args[0]
		}
		return m.refresh(args[min(1, len(args)):], route)
	case scripts.Renew:
		var all []renewal
		kind, mark, _ := strings.Cut(args[1], "#")
		for i := 2; i+1 < len(args); i += 2 {
			all = append(all, renewal{args[i], n(0), n(i + 1), mark})
		}
		return m.renew(all, kind != "w")
	default:
		return m.inspect()
	}
}

// readHold reads the details that a client wrote of a hold.
func readHold(id, details string) hold {
	part := strings.SplitN(details, " ", 5)
	owner, from, _ := strings.Cut(part[2], "^")
	h := hold{id: id, mode: part[0], claim: number(part[1]), from: from, route: part[3], meta: part[4]}
	if block, is := strings.CutPrefix(owner, "+"); is {
		h.block = number(block)
	} else if owner != "-" {
		h.owner = owner
	}
	return h
}

// microsIn returns the server's time in a reply, or 0.
func microsIn(name scripts.Name, got []any) int64 {
	at := 3
	switch name {
	case scripts.Group:
		for _, text := range got {
			if fields, _ := Fields(text); len(fields) > 3 {
				return number(fields[3])
			}
		}
		return 0
	case scripts.Renew, scripts.Refresh, scripts.Inspect:
		at = 0
	case scripts.Release:
		at = 1
	case scripts.Break:
		at = 2
	}
	return number(got[at])
}

func microsOf(time any) int64 {
	parts, ok := time.([]any)
	if !ok || len(parts) != 2 {
		return 0
	}
	return number(parts[0])*1_000_000 + number(parts[1])
}

// readMarker reads the marker of a master, and which process is there.
func readMarker(c Call, key string) *marker {
	has := map[string]string{}
	if flat, ok := c.Command("HGETALL", key).([]any); ok {
		for i := 0; i+1 < len(flat); i += 2 {
			has[flat[i].(string)] = flat[i+1].(string)
		}
	}
	k := &marker{
		layout: has["layout"], rules: has["rules"], set: has["set"], seat: has["seat"], seats: has["seats"],
		run: has["run"], id: has["id"], terms: parseTerms(has["terms"]),
	}
	_, k.voted = has["until"]
	k.until = max(number(has["until"]), 0)
	info, _ := c.Command("INFO").(string)
	for line := range strings.SplitSeq(info, "\r\n") {
		switch field, value, _ := strings.Cut(line, ":"); field {
		case "run_id":
			k.process = value
		case "role":
			k.role = value
		}
	}
	return k
}

// voteOn returns the vote on a call with this first argument.
func (k *marker) voteOn(us int64, arg string) verdict {
	part := strings.Fields(arg)
	k.given.quarantine = number(part[2])
	return k.vote(us, number(part[0]), part[1], part[3] == "1")
}

func (t *Trace) checkMarker(c Call) error {
	k := readMarker(c, c.Keys[0])
	reply, _ := c.Run()
	got, ok := Fields(reply)
	if !ok {
		return nil
	}
	us, a := number(got[0]), append(slices.Clone(c.Args), make([]string, 9)...)
	k.given = given{layout: a[1], rules: a[2], seats: a[5], quarantine: number(a[6])}
	call := markerCall{Purpose: a[0], Set: a[3], Seat: int(max(number(a[4]), 0)), Terms: a[7], Of: a[8]}
	want := k.call(us, call)
	t.seen.add("marker: " + call.Purpose)
	t.Checked++
	if !matches(want, got) {
		return fmt.Errorf("marker %q answers %v, the model %v", c.Args, got, want)
	}
	return nil
}

// groupParts divides a group by locks.
func (t *Trace) groupParts(c Call, several bool) (parts []*part) {
	args, isSet, order := c.Args[1:], isSet(c.Args[1]), orderOf(c.Args[1])
	releases := int(number(strings.TrimSuffix(c.Args[1], "a")))
	count := len(c.Keys) - flag(several)
	byLock := map[string]*part{}
	for i, key := range c.Keys[:count] {
		one := byLock[key]
		if one == nil {
			one = &part{lock: t.lock(key), name: scripts.Group, args: args}
			byLock[key], parts = one, append(parts, one)
		}
		m := member{release: i < releases, inSet: isSet, order: order, hold: hold{id: args[2+i]}}
		if !m.release {
			m.hold, m.life = readRequest(args[2+i], args[1])
			if several {
				m.proposal = number(args[2+count+i-releases])
			}
		}
		one.members, one.renewals = append(one.members, m), append(one.renewals, i)
	}
	return parts
}
