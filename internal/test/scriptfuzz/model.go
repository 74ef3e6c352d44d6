package scriptfuzz

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// The bounds of one script call.
const (
	bound       = 64        // expired holds, expired members aside, dead waiters, grants
	singleBound = 1024      // of these, what a single attempt removes
	aheadMost   = 1_000_000 // microseconds that a token may be ahead of the server's clock
)

// state is the state of a hold, as in lock.lua. A granted hold is in state g, the write hold included.
type state byte

const (
	granted   state = 'g'
	waiting   state = 'q'
	sidelined state = 'p'
	deafWaits state = 'd' // waits, although messages do not reach it
	tombstone state = 'x'
)

// hold is what the lock has of one hold.
type hold struct {
	id, mode, owner, from, route, meta string
	block, claim                       int64
	again                              bool   // it has given a grant back
	ended                              bool   // it was released, and stands until its minimum
	adopts                             bool   // from is a hold of another client, which has detached it
	mark                               string // of a hold that its client has detached
	state                              state
	expiry                             int64
	latest                             int64 // the expiry in the record of a hold, which counts if the holds key is lost
	since, token, first, place         int64
	broken                             string // who and why: of a tombstone
	once                               bool   // the tombstone is for one acquire
}

// mark returns the tombstone of a hold that is broken and stands: its token is 0.
func (m *lock) mark(id string) *hold { return m.aside["b:"+id] }

func (h *hold) details() string {
	owner := "-"
	switch {
	case h.state == tombstone && h.once:
		return "."
	case h.state == tombstone:
		return cmp.Or(h.broken, "-")
	case h.block > 0:
		owner = fmt.Sprint("+", h.block)
	case h.owner != "":
		owner = h.owner
	}
	if h.from != "" {
		owner += "^" + h.from
	}
	if h.again {
		owner += "~"
	}
	if h.mark != "" {
		owner += "#" + h.mark
	}
	return fmt.Sprintf("%s %d %s %s %s", h.mode, h.claim, owner, h.route, h.meta)
}

// channel returns the route without its letter.
func (h *hold) channel() string {
	if h.ended || h.adopter() != "" {
		return h.route
	}
	return h.route[1:]
}

func (h *hold) waits() bool {
	return h != nil && (h.state == waiting || h.state == sidelined || h.state == deafWaits)
}

// named returns the owner if it is not the hold itself.
func (h *hold) named() string {
	if h.owner == h.id {
		return ""
	}
	return h.owner
}

// isDeaf reports whether no process receives the messages of the hold, as the server counts.
func (h *hold) isDeaf() bool { return h.route == deafRoute || h.ended || h.adopter() != "" }

// adopter returns the last hold that was granted to adopt this one, or nothing.
func (h *hold) adopter() string {
	adopter, is := strings.CutPrefix(h.route, "@")
	if !is {
		return ""
	}
	return adopter
}

// group counts the holds of an owner with one token and mode.
type group struct {
	token int64
	mode  string
	count int
}

// lock is the model of one lock on one master.
type lock struct {
	several bool  // masters
	us      int64 // the server's time
	holds   map[string]*hold
	writer  string // the write hold in field w; other write holds have joined it or convert it
	queue   []*hold
	aside   map[string]*hold
	owners  map[string][]group // of named owners, in the order in which the groups began
	t, tw   int64
	place   int64 // the last that was given out

	unindexed bool            // the holds key is lost, and the records decide when holds expire
	unqueued  map[string]bool // waiters that the queue key lacks: the others go before them

	verdict verdict           // of the master on the call that runs
	alive   map[string]bool   // waiters that the call that runs names
	work    [3]int            // of the call that runs: dead members removed, dead waiters removed, grants
	sent    []string          // messages that a process must receive
	asked   map[string]bool   // holds that are asked to yield
	wakened map[string]bool   // shared holds that were notified of a waiter
	ended   map[string]*hold  // expired; a short cut of a script may have left their records
	froms   map[string]string // of all holds: the hold that each converts
	tokens  map[string]int64  // the last that each hold was granted
	unheard map[string]bool   // waiters whose process has not received the hand-off of the call that runs
}

func newLock(several bool) *lock {
	return &lock{
		several: several, holds: map[string]*hold{}, aside: map[string]*hold{}, owners: map[string][]group{},
		asked: map[string]bool{}, wakened: map[string]bool{}, ended: map[string]*hold{},
		froms: map[string]string{}, tokens: map[string]int64{},
	}
}

func (m *lock) ms() int64 { return m.us / 1000 }

// begin is what every call starts with.
func (m *lock) begin(us int64, v verdict) {
	m.us, m.verdict, m.alive, m.work = us, v, map[string]bool{}, [3]int{}
}

func (m *lock) find(id string) *hold {
	if h := m.holds[id]; h != nil {
		return h
	}
	if h := m.aside[id]; h != nil {
		return h
	}
	if i := m.inQueue(id); i >= 0 {
		return m.queue[i]
	}
	return nil
}

func (m *lock) inQueue(id string) int {
	return slices.IndexFunc(m.queue, func(h *hold) bool { return h.id == id })
}

// stands returns a hold that is granted and has not expired.
func (m *lock) stands(id string) *hold {
	if h := m.holds[id]; h != nil && h.expiry > m.ms() {
		return h
	}
	return nil
}

// unindex is what follows from the loss of the holds key: the records say when holds expire.
func (m *lock) unindex() {
	m.unindexed = true
	for id, h := range m.holds {
		if id != m.writer {
			h.expiry = h.latest
		}
	}
}

func (m *lock) drop(id string) {
	if h := m.holds[id]; h != nil {
		m.count(h, -1)
		delete(m.holds, id)
		if h.token == 0 {
			delete(m.aside, "b:"+id)
		}
		if m.writer == id {
			m.writer = ""
		}
	}
	delete(m.aside, id)
	delete(m.unqueued, id)
	if i := m.inQueue(id); i >= 0 {
		m.queue = slices.Delete(m.queue, i, i+1)
	}
	delete(m.ended, id)
}

// count notes that a named owner has a hold more, or one less.
func (m *lock) count(h *hold, by int) {
	owner := h.named()
	if owner == "" || h.ended {
		return
	}
	groups := m.owners[owner]
	i := slices.IndexFunc(groups, func(g group) bool { return g.token == h.token && g.mode == h.mode })
	if i < 0 {
		groups, i = append(groups, group{h.token, h.mode, 0}), len(groups)
	}
	groups[i].count += by
	m.owners[owner] = slices.DeleteFunc(groups, func(g group) bool { return g.count <= 0 })
}

func (m *lock) counted(owner string) (sum int64) {
	for _, g := range m.owners[owner] {
		sum += int64(g.count)
	}
	return sum
}

// purge removes what has expired. If the write hold has gone, the write hold that lasts longest takes its place.
func (m *lock) purge() {
	for id, h := range m.holds {
		if h.expiry <= m.ms() {
			mark := m.mark(id)
			m.drop(id)
			if mark != nil && mark.expiry > m.ms() {
				mark.id = id
				m.aside[id] = mark
			}
			m.ended[id] = h
			m.work[0]++
		}
	}
	for id, h := range m.aside {
		if h.expiry <= m.ms() {
			m.drop(id)
			m.work[0]++
		}
	}
	if m.writer == "" {
		for _, h := range m.byExpiry() {
			if h.mode == "w" {
				m.writer = h.id
				h.first = 0
			}
		}
	}
}

// byExpiry returns the holds in the order of their expiries.
func (m *lock) byExpiry() []*hold {
	return slices.SortedFunc(maps.Values(m.holds), func(a, b *hold) int {
		return cmp.Or(cmp.Compare(a.expiry, b.expiry), cmp.Compare(a.id, b.id))
	})
}

// mint returns the next token, and the first of its block.
func (m *lock) mint(h *hold) (token, first int64) {
	last := m.t
	if m.several && h.mode == "r" && !h.again {
		last = m.tw
	}
	first = m.us
	if last > 0 {
		first = last + 1
	}
	first = max(first, m.verdict.floor)
	if h.mode == "r" || h.block == 0 {
		return first, 0
	}
	return max(first, min(first+h.block-1, m.us+aheadMost)), first
}

func (m *lock) grant(h *hold, token, first, life int64) {
	h.state, h.token, h.first, h.since = granted, token, 0, m.ms()
	h.expiry, h.latest = m.ms()+life, m.ms()+life
	m.t = max(m.t, token)
	if m.several && h.mode == "w" {
		m.tw = max(m.tw, token)
	}
	m.holds[h.id] = h
	if h.mode == "w" && m.writer == "" {
		m.writer, h.first = h.id, first
	}
	m.count(h, 1)
	m.tokens[h.id] = token
	delete(m.ended, h.id)
}

func (m *lock) enqueue(h *hold, place int64) {
	h.state, h.place, h.expiry, h.since, h.token = waiting, place, m.ms()+h.claim, m.ms(), 0
	m.alive[h.id] = true
	m.insert(h)
}

func (m *lock) insert(h *hold) {
	at, _ := slices.BinarySearchFunc(m.queue, h, m.inOrder)
	m.queue = slices.Insert(m.queue, at, h)
}

func (m *lock) inOrder(a, b *hold) int {
	lack := func(h *hold) int { return int(flag(m.unqueued[h.id])) }
	return cmp.Or(lack(a)-lack(b), cmp.Compare(a.place, b.place), cmp.Compare(a.id, b.id))
}

// lack notes which waiters the queue key lacks.
func (m *lock) lack(ids map[string]bool) {
	m.unqueued = ids
	slices.SortFunc(m.queue, m.inOrder)
}

// lackAll notes that the queue key is gone.
func (m *lock) lackAll() {
	all := map[string]bool{}
	for _, h := range m.queue {
		all[h.id] = true
	}
	m.lack(all)
}

// head returns the first waiter of the queue key, or nil.
func (m *lock) head() *hold {
	if len(m.queue) == 0 || m.unqueued[m.queue[0].id] {
		return nil
	}
	return m.queue[0]
}

// isRival reports whether the head of the queue converts a hold other than from.
func (m *lock) isRival(from string) bool {
	head := m.head()
	return head != nil && head.place == 0 && head.from != "" && head.from != from
}

// await renews a waiter's lease, and brings back a sidelined one.
func (m *lock) await(h *hold) {
	if h.state == sidelined {
		if h.place == 0 && h.mode == "w" && m.isRival(h.from) {
			m.drop(h.id)
			return
		}
		delete(m.aside, h.id)
		h.state = deafWaits
		m.insert(h)
	}
	if m.unqueued[h.id] { // the queue is rebuilt
		m.lack(nil)
	}
	m.alive[h.id] = true
	h.expiry = m.ms() + h.claim
	if h.state != deafWaits {
		h.state = waiting
	}
}

func (m *lock) settle(beneath bool) {
	m.purge()
	m.admit(beneath)
}

// admit lets in waiters in their order. Beneath a write hold it removes dead heads only if asked to.
func (m *lock) admit(beneath bool) {
	for len(m.queue) > 0 && (beneath || m.writer == "") {
		if m.head() == nil {
			m.lack(nil)
		}
		h := m.queue[0]
		lives := h.expiry > m.ms()
		sole := len(m.holds) == 1 && m.holds[h.from] != nil && m.holds[h.from].token > 0
		open := m.writer == "" && m.verdict.code == 0
		if lives && !(open && (len(m.holds) == 0 || h.mode == "r" || sole)) {
			return
		}
		m.queue = m.queue[1:]
		switch {
		case !lives:
			m.work[1]++
		case (h.route == deafRoute || m.unheard[h.id]) && h.state != deafWaits && !m.alive[h.id]:
			h.state = sidelined
			m.aside[h.id] = h
			m.work[1]++
		default:
			m.work[2]++
			token, first := m.mint(h)
			m.grant(h, token, first, h.claim)
			m.announce(h, first)
		}
	}
}

// announce notes the message of a hand-off; the server's name in it is not known to the model.
func (m *lock) announce(h *hold, first int64) {
	if h.isDeaf() {
		return
	}
	text := fmt.Sprintf("%s %d %d %d %s", h.id, h.token, m.us, h.claim, anyServer)
	if first > 0 {
		text += fmt.Sprintf(" %d %d", first, len(m.queue))
		m.wakened[h.id] = m.wakened[h.id] || len(m.queue) > 0
	}
	m.sent = append(m.sent, text)
}

// forget is the loss of the lock's hash.
func (m *lock) forget() {
	lost := newLock(m.several)
	lost.us, lost.sent, lost.asked, lost.froms, lost.tokens = m.us, m.sent, m.asked, m.froms, m.tokens
	*m = *lost
}

// wake returns the milliseconds until a new call can report something new.
func (m *lock) wake() int64 {
	at := int64(0)
	sooner := func(expiry int64) {
		if at == 0 || expiry < at {
			at = expiry
		}
	}
	if m.writer != "" {
		sooner(m.holds[m.writer].expiry)
	} else {
		for _, h := range m.holds {
			sooner(h.expiry)
		}
		if len(m.queue) > 0 {
			sooner(m.queue[0].expiry)
			if m.verdict.code == replyAbstains && m.verdict.left > 0 {
				sooner(m.ms() + m.verdict.left)
			}
		}
	}
	if at == 0 {
		return 0
	}
	return max(at-m.ms(), 1)
}

// hasPassedBounds reports whether the call that ran may have had more to do than one call of a script does.
func (m *lock) hasPassedBounds() bool { return slices.Max(m.work[:]) >= bound }

// isBeyond reports whether the next call may have to do so many removals or grants.
func (m *lock) isBeyond(removals int) bool {
	expired := 0
	for _, in := range []map[string]*hold{m.holds, m.aside} {
		for _, h := range in {
			if h.expiry <= m.ms() {
				expired++
			}
		}
	}
	dead := 0
	for _, h := range m.queue {
		if h.expiry <= m.ms() {
			dead++
		}
	}
	return expired+len(m.ended) >= removals || dead >= removals || expired > 0 && len(m.queue)-dead >= bound
}

// answerBroken is for a hold that must not come back, with the reason if an operator gave one.
func (m *lock) answerBroken(tomb *hold) reply {
	if tomb == nil || tomb.broken == "" {
		return m.answer(3)
	}
	return append(m.answer(3), tomb.broken)
}

// number reads a whole number of a reply or a key, or -1.
func number(of any) int64 {
	switch n := of.(type) {
	case int64:
		return n
	case string:
		if i, err := strconv.ParseInt(strings.TrimSpace(n), 10, 64); err == nil {
			return i
		}
	}
	return -1
}

// group makes the calls that the script has made, and says which of them it had to make. It may leave one where records
// of what has expired may be left. until is the end of the master's last quarantine.
func (m *lock) group(members []member, got []any, until int64) (want reply) {
	for i, one := range members {
		text := any(nil)
		if i < len(got) {
			text = got[i]
		}
		if text == "" && !m.isCommon(one) {
			want = append(want, "")
			continue
		}
		if one.inSet && isPassed(text) && m.stands(one.hold.id) == nil {
			want = append(want, text)
			continue
		}
		fields, _ := Fields(text)
		if m.several {
			m.verdict.floor = max(min(one.proposal, m.us+aheadMost), until*1000)
		}
		var answer any
		if one.release {
			answer = m.release(one.hold.id, 0, false, false, nil, minimum{}, text == released && m.ended[one.hold.id] != nil)
		} else {
			answer = m.acquire(one.hold, one.life, one.order, 0, "")
		}
		if matches(answer, fields) && (number(fields[0]) == 1 || one.inSet || one.order == "a") && m.verdict.code == 0 {
			answer = text
		}
		want = append(want, answer)
	}
	return want
}

// isCommon reports whether the script must not leave the member.
func (m *lock) isCommon(one member) bool {
	if m.verdict.code != 0 || len(m.aside)+len(m.ended) > 0 {
		return false
	}
	if w := m.stands(m.writer); (one.inSet || one.order == "a") && w != nil && w.id != one.hold.id {
		return m.find(one.hold.id) == nil
	}
	if !one.release {
		return len(m.queue)+len(m.holds) == 0
	}
	h := m.stands(one.hold.id)
	alone := h != nil && m.writer == h.id && len(m.holds) == 1 && len(m.queue) == 0
	return alone && h.named() == "" && h.block == 0 && h.token == m.t
}
