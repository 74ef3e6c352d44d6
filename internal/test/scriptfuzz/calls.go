package scriptfuzz

import (
	"cmp"
	"slices"
	"strings"

	"github.com/seed74116694/fencelock/internal/wire"
)

// Reply codes that several scripts have.
const (
	replyAbstains = 4
	replyChanged  = 5
)

// reply is what a script must answer: int64, string, a nested reply, or one of these.
type reply []any

// oneOf is a reply, or a field of it, that may have one of several values; unknown may have any.
type (
	oneOf   []any
	unknown struct{}
)

func (m *lock) refused() reply { return reply{m.verdict.code, int64(0), m.verdict.left, m.us} }

func (m *lock) answer(code int64) reply { return reply{code, int64(0), int64(0), m.us} }

func (m *lock) answerGrant(h *hold, first int64) reply {
	r := reply{int64(1), h.token, h.expiry - m.ms(), m.us}
	if first > 0 {
		r = append(r, first)
	}
	return r
}

// acquire takes the lock for a hold, or queues the hold. An adoption names the token and the secret of the hold that it
// replaces.
func (m *lock) acquire(r hold, life int64, order string, adopts int64, secret string) any {
	if m.verdict.code != 0 {
		return m.refused()
	}
	if own := m.find(r.id); own.waits() {
		m.await(own)
	}
	m.settle(false)
	own := m.find(r.id)
	if own != nil && own.state == tombstone {
		if own.once {
			m.drop(own.id)
		}
		return m.answerBroken(own)
	}
	if own != nil && own.state == granted {
		if own.token == 0 {
			return m.answerBroken(m.mark(r.id))
		}
		return m.answerGrant(own, own.first)
	}
	inTheWay := m.byExpiry()
	if r.adopts {
		inTheWay = nil
	} else if r.from != "" {
		inTheWay = m.inTheWay(r.from)
	} else if w := m.holds[m.writer]; w != nil {
		inTheWay = []*hold{w}
	}
	if own.waits() {
		return m.answerWaiting(0, inTheWay)
	}
	if r.adopts {
		return m.adopt(&r, life, adopts, secret)
	}
	enters := m.writer == "" && (r.mode == "r" || len(m.holds) == 0)
	switch {
	case r.from != "":
		clear := len(inTheWay) == 0
		enters = enters || clear && (r.mode == "w" && m.writer != r.from || r.mode == "r" && m.writer == r.from)
		if !enters && r.mode == "w" && m.writer == "" && m.isRival(r.from) {
			return m.answer(7)
		}
	case len(m.queue) > 0:
		enters = enters && order == "h" && m.queue[0].place > 0 && r.id < m.queue[0].id
	}
	if of := m.holds[r.from]; enters && of != nil && of.token == 0 {
		return m.answerBroken(m.mark(r.from))
	}
	m.froms[r.id] = r.from
	switch {
	case enters:
		token, first := m.mint(&r)
		m.grant(&r, token, first, life)
		return m.answerGrant(&r, first)
	case order == "0":
		return m.answerWaiting(2, inTheWay)
	case r.from != "":
		m.enqueue(&r, 0)
	case order == "a":
		m.place++
		m.enqueue(&r, m.place)
	default:
		m.enqueue(&r, 1)
	}
	if order == "h" {
		m.askToYield(&r)
	}
	return m.answerWaiting(0, inTheWay)
}

// adopt grants a hold beside the one that it adopts, which must stand with this token, mode and mark.
func (m *lock) adopt(r *hold, life, token int64, secret string) any {
	of := m.find(r.from)
	switch {
	case of != nil && of.state == tombstone:
		return m.answerBroken(of)
	case of == nil || of.state != granted || of.mode != r.mode, of.token > 0 && of.token != token:
		return m.answer(3)
	case of.token == 0:
		return m.answerBroken(m.mark(of.id))
	case of.mark != wire.MarkOf(secret):
		return m.answer(3)
	case m.stands(of.adopter()) != nil:
		return m.answer(7)
	}
	m.froms[r.id] = r.from
	m.verdict.floor = max(m.verdict.floor, token+1)
	larger, _ := m.mint(r)
	m.grant(r, larger, 0, life)
	r.since, of.route = of.since, "@"+r.id
	return m.answerGrant(r, 0)
}

// inTheWay returns the holds that a conversion has to wait for, in the order of their expiries, the write hold first.
// The hold that it converts is not in the way, nor is the hold from which that one was converted, nor another attempt.
func (m *lock) inTheWay(from string) (all []*hold) {
	before := ""
	if f := m.find(from); f != nil && m.writer != "" {
		before = f.from
	}
	for _, h := range m.byExpiry() {
		switch {
		case h.id == from || before != "" && h.id == before || h.from == from:
		case h.id == m.writer:
			all = slices.Insert(all, 0, h)
		default:
			all = append(all, h)
		}
	}
	return all
}

// answerWaiting names the holder for which the hold waits: the write hold, or the hold that expires first. Of holds
// that expire at the same time it may be any.
func (m *lock) answerWaiting(code int64, among []*hold) any {
	if len(among) == 0 {
		return reply{code, int64(0), m.wake(), m.us, "", int64(0), int64(0), ""}
	}
	var first oneOf
	for _, h := range among {
		if h == among[0] || h.expiry == among[0].expiry && among[0].id != m.writer {
			first = append(first, reply{
				code, int64(0), m.wake(), m.us, h.id, h.expiry - m.ms(), m.ms() - h.since, h.details(),
			})
		}
	}
	return first
}

// askToYield asks the holders that this waiter goes before: younger ones, and for a conversion all but its own hold.
func (m *lock) askToYield(r *hold) {
	among := m.byExpiry()
	if w := m.holds[m.writer]; w != nil {
		among = []*hold{w}
	}
	for _, h := range among[:min(len(among), 16)] {
		if (h.id > r.id || r.from != "" && h.id != r.from) && !h.isDeaf() {
			m.asked[h.id] = true
		}
	}
}

// join nests a hold in its owner's standing hold: in the one with that token, or the largest.
func (m *lock) join(r hold, life, token int64) reply {
	if m.verdict.code != 0 {
		return m.refused()
	}
	m.settle(false)
	own := m.find(r.id)
	if own != nil && own.state == tombstone {
		return m.answer(3)
	}
	if own != nil && own.state == granted {
		if own.token == 0 {
			return m.answer(3)
		}
		return append(m.answerGrant(own, 0), max(m.counted(r.owner), 1), own.mode)
	}
	var joined group
	for _, g := range m.owners[r.owner] {
		if token == 0 && g.token >= joined.token || token == g.token {
			joined = g
		}
	}
	stands := joined.mode == "r" && len(m.holds) > 0
	if w := m.holds[m.writer]; w != nil {
		stands = joined.count > 0 && w.named() == r.owner
	}
	switch {
	case own != nil || !stands:
		return m.answer(0)
	case joined.mode == "r" && r.mode == "w":
		return m.answer(2)
	}
	r.mode = joined.mode
	m.froms[r.id] = ""
	m.grant(&r, joined.token, 0, life)
	return append(m.answerGrant(&r, 0), m.counted(r.owner), r.mode)
}

// release ends holds of one client. found says whether the script found the first one although it had expired.
func (m *lock) release(id string, tomb int64, strays, again bool, others []string, min minimum, found bool) reply {
	who := m.breaker(id)
	if min.rest > 0 || min.grant > 0 {
		m.purge()
	}
	was := m.find(id)
	hadWaiters := len(m.queue) > 0
	if was != nil {
		m.lower(was, min.token, min.grant)
	}
	if m.keepEnded(was, tomb*map[bool]int64{true: 1}[strays], min) {
		m.admit(false)
		more := any(m.more())
		if !hadWaiters && m.verdict.unread {
			more = oneOf{int64(0), int64(2)}
		}
		return append(reply{int64(1), m.us, more}, who...)
	}
	code := m.dropHold(id)
	for _, other := range others {
		m.dropHold(other)
	}
	m.purge()
	if tomb > 0 && (code == 0 && !found || strays) {
		once := !strays && !again && len(who) == 0 && (m.aside[id] == nil || m.aside[id].once)
		m.drop(id)
		m.aside[id] = &hold{id: id, state: tombstone, expiry: m.ms() + tomb, since: m.ms(), once: once}
		if len(who) > 0 {
			m.aside[id].broken = who[0].(string)
		}
	}
	m.admit(false)
	want, more := any(code), any(m.more())
	if code == 0 && was == nil || found {
		want = oneOf{int64(0), int64(1)}
		if m.ended[id] == nil && !found {
			want = code
		}
	}
	if !hadWaiters && m.verdict.unread { // with nothing to let in, the script may not have looked at its vote
		more = oneOf{int64(0), int64(2)}
	}
	return append(reply{want, oneOf{int64(0), m.us}, more}, who...)
}

// breaker returns who broke a hold and why, if an operator did.
func (m *lock) breaker(id string) (who []any) {
	h := m.find(id)
	if h != nil && h.state == granted && h.token == 0 {
		h = m.mark(id)
	}
	if h != nil && h.state == tombstone && h.broken != "" {
		who = append(who, h.broken)
	}
	return who
}

// minimum is until when a released hold stands: least after its grant, and rest from now at most. A counter that is
// ahead of the clock goes back for this grant, if the lease has this token.
type minimum struct{ least, rest, token, grant int64 }

// lower sets back a counter that is ahead of the clock, for a write that stands alone.
func (m *lock) lower(h *hold, token, grant int64) {
	most := m.us + aheadMost
	alone := m.writer == h.id && len(m.holds) == 1 && h.token == m.t
	if m.verdict.code == 0 && alone && m.t == grant && m.t > most && token <= most {
		m.t, m.tw = most, most
	}
}

// keepEnded keeps a granted hold as ended, and reports whether it does.
func (m *lock) keepEnded(h *hold, tomb int64, min minimum) bool {
	if h == nil || h.state != granted || min.rest == 0 || h.token == 0 {
		return h != nil && h.ended && min.rest > 0
	}
	expiry := h.since + min.least
	if expiry > m.ms()+min.rest {
		expiry = m.ms() + min.rest
	}
	if tomb > 0 && expiry < m.ms()+tomb {
		expiry = m.ms() + tomb
	}
	if expiry <= m.ms() {
		return false
	}
	m.count(h, -1)
	h.ended, h.token, h.first, h.route, h.expiry, h.latest = true, 0, 0, "-", expiry, expiry
	return true
}

func (m *lock) dropHold(id string) int64 {
	h := m.find(id)
	switch {
	case h == nil || h.state == tombstone:
		return 0
	case h.state == granted:
		m.drop(id)
		return 1
	default:
		m.drop(id)
		return 2
	}
}

// more returns what a call has left to the client.
func (m *lock) more() int64 {
	switch {
	case m.verdict.unread:
		return 2
	case m.hasPassedBounds():
		return 1
	default:
		return 0
	}
}

// renewal is one hold in a call of renew.
type renewal struct {
	id         string
	ttl, token int64
	mark       string // or nothing
}

// renew sets new expiries, and says which holds are waited for if it is told to. It settles nothing.
func (m *lock) renew(all []renewal, told bool) reply {
	r := reply{m.us}
	for _, one := range all {
		h := m.stands(one.id)
		switch {
		case m.verdict.changed:
			r = append(r, int64(3))
			continue
		case h == nil || h.token != one.token:
			r = append(r, m.gone(one.id))
			continue
		}
		h.expiry = m.ms() + one.ttl
		h.mark = cmp.Or(one.mark, h.mark)
		if h.latest < h.expiry {
			h.latest = h.expiry
			if one.ttl < 3_000_000 {
				h.latest += 60_000
			}
		}
		if m.unindexed && h.id != m.writer {
			h.expiry = h.latest
		}
		waited := told && len(m.queue) > 0
		m.wakened[h.id] = m.wakened[h.id] || waited
		r = append(r, int64(1+flag(waited)))
	}
	return r
}

// gone is the status of a renewal of a hold that does not stand with its token.
func (m *lock) gone(id string) any {
	tomb := m.aside[id]
	if tomb == nil || tomb.state != tombstone {
		tomb = m.mark(id)
	}
	if tomb == nil || tomb.broken == "" || tomb.expiry <= m.ms() {
		return int64(0)
	}
	return tomb.broken
}

// breakHold makes a granted hold unrenewable, or ends a hold.
func (m *lock) breakHold(id string, atOnce bool, life int64, who string) reply {
	m.purge()
	h, code, left := m.find(id), int64(0), int64(0)
	leave := func(id string, token int64) {
		m.aside[id] = &hold{id: id, state: tombstone, expiry: m.ms() + life, since: m.ms(), token: token, broken: who}
	}
	switch {
	case h != nil && h.state == granted && (atOnce || h.ended):
		code = 2
		m.drop(id)
		leave(id, 0)
	case h != nil && h.state == granted:
		code, left = 1, h.expiry-m.ms()
		if h.token > 0 {
			m.count(h, -1)
			life += left
			leave("b:"+id, h.token)
			h.token = 0
		}
	case h.waits():
		code = 3
		m.drop(id)
		leave(id, 0)
	case h == nil || h.state != tombstone:
		leave(id, 0)
	}
	if code > 0 && !h.isDeaf() {
		m.sent = append(m.sent, id+" broken "+who)
	}
	m.settle(false)
	return reply{code, left, m.us, m.more()}
}

// refresh keeps waiters alive: their process listens at route now.
func (m *lock) refresh(ids []string, route string) reply {
	for _, id := range ids {
		if h := m.find(id); h.waits() {
			if route != "-" {
				h.route = route
			}
			m.await(h)
		}
	}
	m.settle(true)
	r := reply{m.us, m.wake(), m.more()}
	for _, id := range ids {
		h := m.find(id)
		switch {
		case h != nil && h.state == granted && h.token == 0:
			r = append(r, int64(2), int64(0), int64(0))
		case h != nil && h.state == granted && m.verdict.code == 0:
			r = append(r, int64(1), h.token, h.expiry-m.ms())
		case h != nil && h.state == granted || h.waits():
			r = append(r, int64(0), int64(0), int64(0))
		default:
			r = append(r, int64(2), int64(0), int64(0))
		}
	}
	return r
}

// raise raises the token of a standing hold.
func (m *lock) raise(id string, token int64) reply {
	if m.verdict.code != 0 {
		return m.refused()
	}
	h := m.stands(id)
	switch {
	case h == nil || h.token == 0 || h.token > token:
		return m.answer(0)
	case h.token == token:
		return m.answerGrant(h, 0)
	case token > m.us+aheadMost:
		return m.answer(6)
	case h.mode == "w" && m.t >= token, m.writer == id && h.token != m.t:
		return m.answer(0)
	}
	m.count(h, -1)
	h.token, m.t = token, max(m.t, token)
	if h.mode == "w" {
		m.tw = token
	}
	if owner := h.named(); owner != "" { // always a group of its own
		m.owners[owner] = append(m.owners[owner], group{token, h.mode, 1})
	}
	m.tokens[id] = token
	return m.answerGrant(h, 0)
}

// yield puts a hold back into the queue if a waiter goes before it. With leave it is gone in any case.
func (m *lock) yield(id string, token int64, leave bool) reply {
	if m.verdict.code != 0 {
		return m.refused()
	}
	m.settle(false)
	h := m.find(id)
	switch {
	case h.waits():
		m.await(h)
		m.admit(false)
	case h != nil && h.state == granted && !h.ended && h.token == token:
		left := h.expiry - m.ms()
		m.drop(id)
		h.again = true
		if leave {
			m.settle(false)
		} else if head := m.head(); head != nil && (head.id < id || head.place == 0) {
			m.enqueue(h, 1)
			m.settle(false)
		} else {
			kept, first := m.mint(h)
			m.grant(h, kept, first, max(h.claim, left))
		}
	}
	switch h = m.find(id); {
	case h != nil && h.state == granted && h.token > 0:
		return m.answerGrant(h, h.first)
	case h.waits():
		return reply{int64(0), int64(0), m.wake(), m.us}
	default:
		return m.answer(2)
	}
}

// regain gives a hold back to its client after the master has lost it, or has granted it with a larger token. Behind
// another hold it waits at the head of the queue.
func (m *lock) regain(r hold, life, token int64, trusted bool, known int64) reply {
	if m.verdict.code != 0 && (!trusted || !m.verdict.abstains) {
		return m.refused()
	}
	if m.verdict.changed {
		return m.answer(replyChanged)
	}
	m.purge()
	own, votes, stands := m.find(r.id), m.verdict.code == 0, m.stands(r.id)
	free := m.writer == "" && (r.mode == "r" || len(m.holds) == 0)
	code := int64(0)
	switch {
	case stands != nil:
		if alone := free && r.mode == "r" || m.writer == r.id && len(m.holds) == 1; own.token > token && alone && votes {
			since := own.since
			m.lower(own, token, known)
			m.drop(r.id)
			m.grant(own, token, 0, life)
			own.since = since
		}
		r = *own
	case own != nil && own.state == tombstone, !free && !votes:
	case free:
		m.drop(r.id)
		m.froms[r.id] = r.from
		m.grant(&r, token, 0, life)
		m.wakened[r.id] = true // by the masters that have not lost the hold
	default:
		m.drop(r.id)
		m.froms[r.id] = r.from
		m.enqueue(&r, 0)
		if r.state, code = deafWaits, 2; own.waits() {
			r.since = own.since
		}
	}
	m.admit(false)
	if r.state == granted && r.token == token && !r.ended {
		return m.answerGrant(&r, 0)
	}
	return m.answer(code)
}

// inspect shows the holders and the waiters.
func (m *lock) inspect() reply {
	mode, holders, waiters := "", reply{}, reply{}
	for _, h := range m.byExpiry() {
		if h.expiry <= m.ms() {
			continue
		}
		if mode == "" {
			mode = h.mode
		}
		owner, shared := cmp.Or(h.owner, h.id), int64(0)
		if h.block > 0 {
			shared = 1
		}
		token, broken, by := h.token, int64(0), ""
		if token == 0 && !h.ended {
			broken = 1
			if mark := m.mark(h.id); mark != nil {
				token, by = mark.token, mark.broken
			}
		}
		holders = append(holders, reply{
			h.id, owner, h.mode, h.channel(),
			unknown{},
			h.expiry - m.ms(), max(m.ms()-h.since, 0), token, h.meta, shared,
			broken, int64(flag(h.mark != "")), by,
		})
	}
	all := slices.Clone(m.queue)
	for _, h := range m.aside {
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b *hold) int {
		return cmp.Or(cmp.Compare(a.place, b.place), strings.Compare(a.id, b.id))
	})
	for _, h := range all {
		if h.expiry > m.ms() && h.state != tombstone {
			waiters = append(waiters, reply{
				h.id, cmp.Or(h.owner, h.id), h.mode, h.channel(), max(m.ms()-h.since, 0), h.meta, string(h.state), h.place,
			})
		}
	}
	return reply{m.us, mode, m.t, holders, waiters}
}
