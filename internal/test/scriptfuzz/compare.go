package scriptfuzz

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed74116694/fencelock/scripts"
)

// The numbers in field n, and the zsets that they count, in the order of their keys.
const (
	inHolds = iota
	inQueue
	inAside
)

// dump is what the keys of the lock have.
type dump struct {
	fields  map[string]string
	scores  [3]map[string]int64 // of the zsets
	order   []string            // of the queue
	left    [4]int64            // of the keys, in ms
	records map[string]record   // all holds but the write hold
	keys    int64               // on the server
	foreign bool                // a key is of another type, or the server refuses commands
}

// record is one hold in the hash.
type record struct {
	state                state
	expiry, token, since int64
	details              string
}

func parseRecord(text string) (r record, ok bool) {
	part := strings.SplitN(text, " ", 5)
	if len(part) < 5 || len(part[0]) != 1 {
		return r, false
	}
	r = record{state(part[0][0]), number(part[1]), number(part[2]), number(part[3]), part[4]}
	if in := indexes[r.state]; in == inQueue || r.state == sidelined { // it has the time of the last refresh
		r.expiry += number(strings.Fields(r.details)[1])
	}
	return r, true
}

// owner returns the owner that counts the hold, or nothing.
func (r record) owner(id string) string {
	part := strings.SplitN(r.details, " ", 4)
	name, _, _ := strings.Cut(part[2], "#")
	name, _, _ = strings.Cut(name, "^")
	name = strings.TrimSuffix(name, "~")
	if name[0] == '-' || name[0] == '+' || name == id {
		return ""
	}
	return name
}

func (p *Player) dumped() (d dump, err error) {
	command := append([]string{"EVALSHA", p.dump, "4"}, lockKeys...)
	reply, err := p.client.Do(context.Background(), p.client.B().Arbitrary(command...).Build()).ToAny()
	if err != nil {
		return d, err
	}
	return readDump(reply.([]any)), nil
}

// readDump reads what dumpScript returns.
func readDump(all []any) (d dump) {
	d.fields, d.records = map[string]string{}, map[string]record{}
	flat := all[0].([]any)
	for i := 0; i < len(flat); i += 2 {
		field, text := flat[i].(string), flat[i+1].(string)
		d.fields[field] = text
		if r, ok := parseRecord(text); ok && len(strings.TrimPrefix(field, "b:")) == len(holdID(1)) {
			d.records[field] = r
		}
	}
	for i := range d.scores {
		d.scores[i] = map[string]int64{}
		members := all[1+i].([]any)
		for j := 0; j < len(members); j += 2 {
			d.scores[i][members[j].(string)] = number(members[j+1])
			if i == inQueue {
				d.order = append(d.order, members[j].(string))
			}
		}
	}
	for i := range d.left {
		d.left[i] = all[4+i].(int64)
	}
	d.keys = all[8].(int64)
	d.unpack()
	return d
}

// writeHold returns the hold in field w, or nil.
func (d dump) writeHold() (id string, r record, ok bool) {
	w := d.fields["w"]
	if len(w) != 64 {
		return "", r, false
	}
	flag := flagOf(w)
	r = record{granted, number(w[16:29]) + number(w[55:63]), number(w[:16]), number(w[16:29]), d.fields["d"]}
	if flag&1 > 0 {
		r.details += d.fields["e"]
	}
	if flag&2 > 0 {
		r.since = number(d.fields["b"])
	}
	if marks := strings.Fields(d.fields["m"]); flag&8 > 0 && marks[1] != "-" {
		r.token = number(marks[1])
	}
	return w[29:55], r, true
}

// flagOf returns the last part of w: a sum.
func flagOf(w string) int64 {
	flag, _ := strconv.ParseInt(w[63:], 32, 64)
	return flag
}

// unpack adds the counters of field w as fields t and tw.
func (d dump) unpack() {
	w := d.fields["w"]
	if len(w) < 24 {
		return
	}
	d.fields["t"], d.fields["tw"] = w[:16], w[:16]
	if len(w) == 40 || len(w) == 41 {
		d.fields["tw"] = w[24:40]
	}
	if marks := strings.Fields(d.fields["m"]); len(w) == 64 && flagOf(w)&8 > 0 && marks[2] != "-" {
		d.fields["tw"] = marks[2]
	}
}

// compare compares the messages and the keys with the model, and checks the promises.
func (p *Player) compare() error {
	d, err := p.dumped()
	if err != nil {
		return err
	}
	return p.compareWith(d)
}

func (p *Player) compareWith(d dump) error {
	p.m.us = p.us
	if err := p.compareMessages(); err != nil {
		return err
	}
	for _, look := range []func(dump) error{
		p.compareNumbers, p.compareHolds, p.compareWaiters, p.compareOwners, p.compareLifetimes,
	} {
		if err := look(d); err != nil {
			return err
		}
	}
	return p.keepsPromises()
}

// take returns the messages that have come.
func (p *Player) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	heard := p.heard
	p.heard = nil
	return heard
}

func (p *Player) compareMessages() error {
	var grants []string
	asked := map[string]bool{}
	for _, text := range p.take() {
		part := strings.Fields(text)
		if len(part) > 2 && part[1] == "broken" { // the reason may have spaces
			part = part[:3]
		}
		switch len(part) {
		case 1:
			p.seen.add("message: yield")
			asked[part[0]] = true
		case 2:
			p.seen.add("message: wanted")
			if part[1] != "wanted" || p.m.froms[part[0]] == "" && p.m.tokens[part[0]] == 0 {
				return fmt.Errorf("message %q", text)
			}
			p.m.wakened[part[0]] = true
		case 3:
			p.seen.add("message: broken")
			grants = append(grants, text)
		case 5, 7:
			p.seen.add(map[int]string{5: "message: grant", 7: "message: grant of a block"}[len(part)])
			if len(part[4]) < 6 || strings.Trim(part[4], "0123456789abcdef") != "" {
				return fmt.Errorf("message %q: no server", text)
			}
			part[4] = anyServer
			grants = append(grants, strings.Join(part, " "))
		default:
			return fmt.Errorf("message %q", text)
		}
	}
	sent, wanted := p.m.sent, p.m.asked
	p.m.sent, p.m.asked = nil, map[string]bool{}
	slices.Sort(sent) // messages of two channels have no order
	slices.Sort(grants)
	if !slices.Equal(grants, sent) {
		return fmt.Errorf("messages %q, the model %q", grants, sent)
	}
	if !maps.Equal(asked, wanted) && !p.strays {
		return fmt.Errorf("asked to yield %v, the model %v", asked, wanted)
	}
	return nil
}

var indexes = map[state]int{
	granted: inHolds, waiting: inQueue, deafWaits: inQueue, sidelined: inAside, tombstone: inAside,
}

// compareNumbers checks that n counts the records, and that the zsets index them.
func (p *Player) compareNumbers(d dump) error {
	if w := d.fields["w"]; w != "" && d.fields["n"] != "" && w[len(w)-1] <= 'f' {
		return fmt.Errorf("w %q does not say that there is n", w)
	}
	var n, records, missing [3]int64
	unqueued := map[string]bool{}
	for i, text := range strings.Fields(d.fields["n"]) {
		n[i] = number(text)
	}
	if d.fields["n"] != "" && n == [3]int64{} {
		return fmt.Errorf("n is %q", d.fields["n"])
	}
	for id, r := range d.records {
		in := indexes[r.state]
		records[in]++
		if _, indexed := d.scores[in][id]; !indexed {
			missing[in]++
			if in == inQueue {
				unqueued[id] = true
			}
		}
	}
	p.m.lack(unqueued)
	strays := false
	for in := range n {
		members := int64(len(d.scores[in]))
		p.lost[in] = p.lost[in] && missing[in] > 0
		switch {
		case n[in] != records[in]:
			return fmt.Errorf("n is %q, but there are %v records", d.fields["n"], records)
		case missing[in] > 0 && !p.lost[in], missing[in] > 0 && in == inHolds && members > 0 && !p.strays:
			return fmt.Errorf("zset %s lacks %d of %d records", lockKeys[in+1], missing[in], records[in])
		case members > records[in]-missing[in] && !p.strays:
			return fmt.Errorf("zset %s has members without records", lockKeys[in+1])
		}
		strays = strays || members > records[in]-missing[in]
	}
	p.strays, p.m.unindexed = strays, p.lost[inHolds]
	return nil
}

// compareHolds compares the holds that have not expired. A hold that has expired may stand again after the clock went
// back, if no script has removed it.
func (p *Player) compareHolds(d dump) error {
	shown := map[string]record{}
	if id, r, ok := d.writeHold(); ok && r.expiry > p.m.ms() {
		shown[id] = r
		if id != p.m.writer {
			return fmt.Errorf("w is %q, the model's writer %q", d.fields["w"], p.m.writer)
		}
		if _, both := d.records[id]; both {
			return fmt.Errorf("%s is in w and has a record", id)
		}
	}
	for id, r := range d.records {
		if r.state != granted {
			continue
		}
		if score, indexed := d.scores[inHolds][id]; indexed {
			if score > r.expiry {
				return fmt.Errorf("the record of %s expires before its score %d: %+v", id, score, r)
			}
			r.expiry = score
		}
		if r.expiry > p.m.ms() {
			shown[id] = r
		}
		if h := p.m.ended[id]; h != nil && p.m.holds[id] == nil && p.wentBack && r.expiry > p.m.ms() {
			p.m.holds[id] = h
			p.m.count(h, 1)
			delete(p.m.ended, id)
		}
	}
	for id, r := range shown {
		h := p.m.stands(id)
		if h == nil {
			return fmt.Errorf("%s %+v stands, not in the model", id, r)
		}
		if want := (record{granted, h.expiry, h.token, h.since, h.details()}); r != want {
			return fmt.Errorf("hold %s is %+v, in the model %+v", id, r, want)
		}
	}
	for id, h := range p.m.holds {
		if _, ok := shown[id]; !ok && h.expiry > p.m.ms() {
			return fmt.Errorf("%+v stands in the model only", *h)
		}
	}
	return p.compareCounters(d)
}

func (p *Player) compareCounters(d dump) error {
	for field, want := range map[string]int64{"t": p.m.t, "tw": p.m.tw} {
		if field == "tw" && !p.m.several {
			continue
		}
		if text := d.fields[field]; text != "" && number(text) != want || text == "" && want != 0 && p.m.several {
			return fmt.Errorf("%s is %q, in the model %d", field, text, want)
		}
	}
	return nil
}

func (p *Player) compareWaiters(d dump) error {
	var want []string
	for _, h := range p.m.queue {
		r := d.records[h.id]
		if expected := (record{h.state, h.expiry, h.place, h.since, h.details()}); r != expected {
			return fmt.Errorf("waiter %s is %+v, in the model %+v", h.id, r, expected)
		}
		if _, indexed := d.scores[inQueue][h.id]; indexed || !p.lost[inQueue] {
			want = append(want, h.id)
		}
	}
	order := d.order
	if p.strays {
		order = slices.DeleteFunc(order, func(id string) bool { return p.m.inQueue(id) < 0 })
	}
	if !slices.Equal(order, want) {
		return fmt.Errorf("the queue is %q, in the model %q", d.order, want)
	}
	for id, r := range d.records {
		h := p.m.aside[id]
		if r.state != sidelined && r.state != tombstone || r.expiry <= p.m.ms() {
			continue
		}
		if h == nil || h.state != r.state || h.expiry != r.expiry || h.details() != r.details ||
			h.state == tombstone && h.token != r.token {
			return fmt.Errorf("aside is %s %+v, in the model %+v", id, r, h)
		}
	}
	for id, h := range p.m.aside {
		if r := d.records[id]; h.expiry > p.m.ms() && r.state != h.state {
			return fmt.Errorf("%+v is aside in the model only", *h)
		}
	}
	return nil
}

// compareOwners checks that each named owner's field counts the records of its holds.
func (p *Player) compareOwners(d dump) error {
	counts, fields := map[string]int64{}, map[string]int64{}
	for id, r := range d.records {
		if r.state == granted && r.token > 0 && r.owner(id) != "" {
			counts[r.owner(id)]++
		}
	}
	if id, r, ok := d.writeHold(); ok && r.token > 0 && r.owner(id) != "" {
		counts[r.owner(id)]++
	}
	for field, text := range d.fields {
		if owner, ok := strings.CutPrefix(field, "o:"); ok {
			all, groups, _ := strings.Cut(text, " ")
			fields[owner] = number(all)
			sum, part := int64(0), strings.Fields(groups)
			for i := 2; i < len(part); i += 3 {
				sum += number(part[i])
			}
			if sum != number(all) || len(part)%3 != 0 {
				return fmt.Errorf("%s is %q", field, text)
			}
		}
	}
	if !maps.Equal(counts, fields) {
		return fmt.Errorf("owners have the fields %v, and the holds %v", fields, counts)
	}
	return nil
}

// compareLifetimes checks that no key expires before a member of it, and that each key expires.
func (p *Player) compareLifetimes(d dump) error {
	var longest [4]int64
	last := func(key int, expiry int64) {
		longest[0] = max(longest[0], expiry-p.m.ms())
		longest[key] = max(longest[key], expiry-p.m.ms())
	}
	if _, r, ok := d.writeHold(); ok {
		last(0, r.expiry)
	}
	if w := d.fields["w"]; len(w) >= 24 { // its hour, and a hundred seconds
		longest[0] = max(longest[0], 100_000*number(w[16:24])+3_700_000-p.m.ms())
	}
	for in, scores := range d.scores {
		for id, score := range scores {
			r, ok := d.records[id]
			if !ok || indexes[r.state] != in {
				continue
			}
			if in == inQueue {
				score = r.expiry
			}
			last(in+1, score)
		}
	}
	for i, left := range d.left {
		switch {
		case left == -1:
			return fmt.Errorf("key %s does not expire", lockKeys[i])
		case p.wentBack && i >= 1+inQueue: // waiters and tombstones are restored
		case left >= 0 && left+p.passed < longest[i]:
			return fmt.Errorf("key %s expires in %d ms, before a member in %d ms", lockKeys[i], left, longest[i])
		}
	}
	present := int64(0)
	for _, left := range d.left {
		present += int64(flag(left >= 0))
	}
	if p.marker.layout != "" {
		present++
	}
	if d.keys != present {
		return fmt.Errorf("%d keys, and the lock has %d", d.keys, present)
	}
	return nil
}

// isOfOneClient reports whether two standing holds have one owner or convert the same hold. A client that converts
// a hold again has given up its earlier attempt, so that one belongs to the owner of the later attempt, too.
func (p *Player) isOfOneClient(a, b *hold, standing []*hold) bool {
	linked := func(a, b *hold) bool {
		return a.named() != "" && a.named() == b.named() || p.root(a.id) == p.root(b.id)
	}
	return linked(a, b) || slices.ContainsFunc(standing, func(c *hold) bool { return linked(a, c) && linked(c, b) })
}

// keepsPromises checks what the lock promises, in the model, with which the server agrees.
func (p *Player) keepsPromises() error {
	var in []*hold
	for _, h := range p.m.byExpiry() {
		if h.expiry > p.m.ms() {
			in = append(in, h)
		}
	}
	for i, a := range in {
		for _, b := range in[:i] {
			if (a.mode == "w" || b.mode == "w") && !p.isOfOneClient(a, b, in) {
				return fmt.Errorf("two holders: %+v and %+v", *a, *b)
			}
			if a.mode == "w" && a.adopts && b.adopts && a.from == b.from {
				return fmt.Errorf("two adopters: %+v and %+v", *a, *b)
			}
		}
	}
	waits := len(p.m.queue) > 0 && p.m.queue[0].expiry > p.m.ms()
	if waits && len(p.m.holds) == 0 && p.voted && p.goodVote(0).code == 0 {
		return fmt.Errorf("the lock is free, and %+v waits", *p.m.queue[0])
	}
	for _, h := range in {
		if h.id != p.m.writer && (p.m.writer != "" || h.from != "") {
			continue // holds that joined or convert the write hold are notified when it is gone
		}
		if h.block > 0 && !h.isDeaf() && !p.m.wakened[h.id] && p.isWaitedFor(h) {
			return fmt.Errorf("%+v was not told that a hold waits", *h)
		}
	}
	return nil
}

func (p *Player) isWaitedFor(of *hold) bool {
	return slices.ContainsFunc(p.m.queue, func(h *hold) bool { return h.expiry > p.m.ms() && h.from != of.id })
}

// root returns the hold from which a hold was converted in the end.
func (p *Player) root(id string) string {
	for p.m.froms[id] != "" {
		id = p.m.froms[id]
	}
	return id
}

// onlyCountersStay checks that nothing but the counters is left of a lock that has no holds and no waiters.
func (p *Player) onlyCountersStay() error {
	d, err := p.dumped()
	if err != nil {
		return err
	}
	for field, text := range d.fields {
		free := field == "w" && len(text) < 64 || field == "d" && text == ""
		if !free && !strings.Contains(" t tw s b f m ", " "+field+" ") {
			return fmt.Errorf("left: %s %q", field, text)
		}
	}
	for i, left := range d.left[1:] {
		if left != -2 && !p.strays {
			return fmt.Errorf("left: %s", lockKeys[i+1])
		}
	}
	return nil
}

// model makes the call in the model and returns the reply that the script must give.
func (p *Player) model(s step, got []any) any {
	id, h := holdID(s.Hold), s.asHold()
	switch scripts.Name(s.Do) {
	case scripts.Acquire:
		return p.m.acquire(h, s.TTL, queueing(p.m.several, s.Order), p.token(s, s.Of), s.secret())
	case scripts.Join:
		return p.m.join(h, s.TTL, joined(p, s))
	case scripts.Raise:
		return p.m.raise(id, p.token(s, s.Of))
	case scripts.Yield:
		return p.m.yield(id, p.token(s, s.Of), s.leaves())
	case scripts.Break:
		return p.m.breakHold(id, s.Flag, s.Tomb, breaker)
	case scripts.Regain:
		return p.m.regain(h, s.TTL, p.token(s, s.Of), s.Trusted, s.own(p))
	case scripts.Release:
		found := got[0] == int64(1) && p.m.ended[id] != nil
		last := minimum{s.Least, s.Rest, 0, 0}
		if s.Outrun {
			last.token, last.grant = p.token(s, s.Of), s.own(p)
		}
		return p.m.release(id, s.Tomb, s.Flag, s.Again, holdIDs(s.Others), last, found)
	case scripts.Group:
		return p.m.group(members(p, s), got, p.marker.until)
	case scripts.Refresh:
		return p.m.refresh(holdIDs(s.Others), routeArg(s))
	case scripts.Renew:
		var all []renewal
		for _, n := range s.Others {
			all = append(all, renewal{holdID(n), s.TTL, p.token(s, n), s.mark()})
		}
		return p.m.renew(all, s.Kind != "w")
	default:
		return p.m.inspect()
	}
}

// waitingFields is the number of fields of a reply to an acquire that waits or is refused.
const waitingFields = 8

// behind is the line of behind.lua: status, us, renewed, hold, TTL, since, details.
var behind = regexp.MustCompile(`(?s)^([02])(\d{16})(\d{13})(\w{26})([ \d]{8})(\d{13})(.*)$`)

// Renewed returns the reply of a renewal of n holds with the status of each behind the time: 1 and 3 are not in it.
func Renewed(got []any, n int) (all []any, ok bool) {
	if len(got) == 1 {
		return append(got, slices.Repeat([]any{int64(3)}, n)...), true
	}
	all = append([]any{got[0]}, slices.Repeat([]any{int64(1)}, n)...)
	for other := range slices.Chunk(got[2:], 2) {
		all[number(other[0])] = other[1]
	}
	return all, int(number(got[1])) == n-(len(got)-2)/2
}

// Fields returns the fields of a reply: int64, string, and lists. A reply that is a line has them too.
func Fields(reply any) (fields []any, ok bool) {
	line, ok := reply.(string)
	if !ok {
		fields, ok = reply.([]any)
		return fields, ok
	}
	if part := behind.FindStringSubmatch(line); part != nil {
		us, hold, since, details := number(part[2]), part[4], number(part[6]), part[7]
		left := number(part[3]) + number(part[5]) - us/1000
		return []any{number(part[1]), int64(0), left, us, hold, left, us/1000 - since, details}, true
	}
	parts := strings.SplitN(line, " ", waitingFields)
	for i, part := range parts {
		number, err := strconv.ParseInt(part, 10, 64)
		if len(parts) == waitingFields && (i == 4 || i == 7) { // the holder's id and details
			fields = append(fields, part)
		} else if fields = append(fields, number); err != nil {
			return nil, false
		}
	}
	return fields, true
}
