package scripts_test

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// model is one lock as lock.lua and the headers describe it, in plain Go: who holds it, who waits in which order, who
// was passed over, what has been released before it came, and when each of them expires. What the scripts leave for
// later, it leaves for later too.
type model struct {
	quorum   bool  // one of several masters
	proposal int64 // of the script that runs
	us, ms   int64 // the server's clock
	writer   *modelHold
	alone    bool        // requests name the lock alone: only a writer's common case needs no other key
	hadOne   bool        // a writer, when the script began
	holds    []modelHold // readers, or those that joined the writer
	queue    []modelHold // by place
	aside    []modelHold // passed over, tombstones
	owners   map[string][]modelGroup
	alive    map[string]bool // waiters whose process sent the script
	far      [2]int64        // until and since when waiters in state f live; all are of one process
	t, tw, s int64
	first    int64 // of the block that the reply of the script that runs tells of
}

type modelHold struct {
	id, owner, mode string
	from            string // the hold that this one converts
	state           byte   // as in lock.lua; 0: none
	expiry, token   int64
	latest          int64 // the expiry that its record allows
	place           int64
	claim           int64
	block, first    int64 // tokens of a grant to write, and the first of them
	begun           int64 // when a waiter got state f
	unheard         bool  // nobody hears its messages
	again           bool  // it has given a grant back
}

// modelGroup counts the holds of an owner that have one token and mode. Of its groups the latest is the last.
type modelGroup struct {
	token int64
	mode  string
	count int64
}

func newModel(quorum bool) *model { return &model{quorum: quorum, owners: map[string][]modelGroup{}} }

// begin is what every script starts with.
func (m *model) begin(us int64, passed time.Duration, proposal int64) {
	if us > 0 { // else it has not read the clock
		m.us, m.ms = us, us/1000+passed.Milliseconds()
	}
	m.proposal, m.hadOne, m.alive, m.first = proposal, m.writer != nil, map[string]bool{}, 0
}

func byID(id string) func(modelHold) bool { return func(h modelHold) bool { return h.id == id } }

// find returns what there is of a hold.
func (m *model) find(id string) modelHold {
	if m.writer != nil && m.writer.id == id {
		return *m.writer
	}
	for _, in := range [][]modelHold{m.holds, m.queue, m.aside} {
		if i := slices.IndexFunc(in, byID(id)); i >= 0 {
			return in[i]
		}
	}
	return modelHold{}
}

func (m *model) drop(h modelHold) {
	switch h.state {
	case 'w':
		m.writer = nil
		m.leave(h)
	case 'g':
		m.holds = slices.DeleteFunc(m.holds, byID(h.id))
		m.leave(h)
	case 'q', 'd', 'f':
		m.queue = slices.DeleteFunc(m.queue, byID(h.id))
	case 'p', 'x':
		m.aside = slices.DeleteFunc(m.aside, byID(h.id))
	}
}

func (m *model) leave(h modelHold) {
	if h.owner != h.id {
		m.count(h, -1)
	}
}

// count notes for a named owner that it has a hold more or less.
func (m *model) count(h modelHold, by int64) {
	groups := m.owners[h.owner]
	i := slices.IndexFunc(groups, func(g modelGroup) bool { return g.token == h.token && g.mode == h.mode })
	if i < 0 {
		groups, i = append(groups, modelGroup{h.token, h.mode, 0}), len(groups)
	}
	groups[i].count += by
	m.owners[h.owner] = slices.DeleteFunc(groups, func(g modelGroup) bool { return g.count == 0 })
	if len(m.owners[h.owner]) == 0 {
		delete(m.owners, h.owner)
	}
}

// counted returns how many holds a named owner has.
func (m *model) counted(owner string) (sum int64) {
	for _, g := range m.owners[owner] {
		sum += g.count
	}
	return sum
}

// mint returns the token of a grant, and the first of its block.
func (m *model) mint(h modelHold) (token, first int64) {
	last, floor := m.t, m.us
	if m.quorum {
		floor = min(m.proposal, m.us+1_000_000)
		if h.mode == "r" && !h.again {
			last = m.tw
		}
		if last == 0 {
			floor = max(floor, m.us)
		}
	}
	first = max(last+1, floor)
	if h.mode == "r" || h.block == 0 {
		return first, 0
	}
	return max(first, min(first+h.block-1, m.us+1_000_000)), first
}

func (m *model) grant(h modelHold, token, first, life int64) {
	h.token, h.first, h.expiry = token, first, m.ms+life
	m.t = max(m.t, token)
	if m.quorum && h.mode == "w" {
		m.tw = max(m.tw, token)
	}
	if h.owner != h.id {
		m.count(h, 1)
	}
	if h.mode == "w" && m.writer == nil {
		h.state = 'w'
		m.writer = &h
		return
	}
	h.state, h.first, h.latest = 'g', 0, h.expiry
	m.holds = append(m.holds, h)
}

func (m *model) enqueue(h modelHold) {
	m.alive[h.id] = true
	m.queue = append(m.queue, h)
	slices.SortFunc(m.queue, func(x, y modelHold) int {
		return cmp.Or(cmp.Compare(x.place, y.place), cmp.Compare(x.id, y.id))
	})
}

// await renews a waiter's lease, and brings one back that was passed over, unless it upgrades and another one does.
func (m *model) await(h modelHold) {
	m.drop(h)
	if h.state == 'f' {
		h.state = 'q'
	}
	if h.state == 'p' {
		if h.mode == "w" && h.from != "" && m.hasRival(h.from) {
			return
		}
		h.state = 'd'
	}
	h.expiry = m.ms + h.claim
	m.enqueue(h)
}

// hasRival reports whether whoever waits first converts another hold than that one.
func (m *model) hasRival(from string) bool {
	return len(m.queue) > 0 && m.queue[0].place == 0 && m.queue[0].from != from
}

func (m *model) purge() {
	for _, h := range append(slices.Clone(m.holds), m.aside...) {
		if h.expiry <= m.ms {
			m.drop(h)
		}
	}
	if m.writer != nil && m.writer.expiry <= m.ms {
		m.drop(*m.writer)
	}
	if m.hadOne && m.writer == nil {
		m.promote()
	}
}

// promote puts the one of those who joined the writer that lasts longest in its place.
func (m *model) promote() {
	slices.SortFunc(m.holds, func(x, y modelHold) int {
		return -cmp.Or(cmp.Compare(x.expiry, y.expiry), cmp.Compare(x.id, y.id))
	})
	for _, h := range m.holds {
		if h.mode == "w" {
			m.holds = slices.DeleteFunc(m.holds, byID(h.id))
			h.state = 'w'
			m.writer = &h
			return
		}
	}
}

func (m *model) admit(beneath bool) {
	for len(m.queue) > 0 && (beneath || m.writer == nil) {
		head := m.queue[0]
		head.expiry = m.until(head)
		dead := head.expiry <= m.ms
		upgrades := len(m.holds) == 1 && m.holds[0].id == head.from
		if !dead && (m.writer != nil || head.mode == "w" && len(m.holds) > 0 && !upgrades) {
			return
		}
		m.queue = m.queue[1:]
		switch {
		case dead:
		case head.unheard && head.state != 'd' && !m.alive[head.id]:
			head.state = 'p'
			m.aside = append(m.aside, head)
		default:
			token, first := m.mint(head)
			m.grant(head, token, first, head.claim)
		}
	}
}

// until returns when a waiter's lease ends: one in state f lives by that of its process, if that has not lapsed since.
func (m *model) until(h modelHold) int64 {
	switch {
	case h.state != 'f':
		return h.expiry
	case h.begun < m.far[1]:
		return 0
	default:
		return m.far[0]
	}
}

func (m *model) settle() {
	m.purge()
	m.admit(false)
}

func (h modelHold) granted() bool { return h.state == 'w' || h.state == 'g' }
func (h modelHold) waits() bool {
	return h.state == 'q' || h.state == 'd' || h.state == 'p' || h.state == 'f'
}

func (h modelHold) stands(ms int64) bool {
	return h.granted() && h.expiry > ms
}

// asHold reads the details that a request was sent with.
func asHold(id, details string) modelHold {
	part := strings.Fields(details)
	claim, _ := strconv.ParseInt(part[1], 10, 64)
	owner, from, _ := strings.Cut(part[2], "^")
	block, _ := strconv.ParseInt(strings.TrimPrefix(owner, "+"), 10, 64)
	if owner[0] == '-' || owner[0] == '+' {
		owner = id
	} else {
		block = 0
	}
	return modelHold{
		id: id, mode: part[0], claim: claim, owner: owner, from: from, block: block, unheard: part[3] == deaf,
	}
}

// The scripts of the model. Each returns the status and the token of the reply.

func (m *model) acquire(r modelHold, order string, life int64) (status, token int64) {
	own := m.find(r.id)
	quiet := len(m.queue) == 0 && len(m.aside) == 0 && own.state == 0 && m.writer == nil
	joins := r.mode == "r" && r.owner == r.id && len(m.holds)%64 > 0
	straight := quiet && (!m.alone || r.mode == "w") && (len(m.holds) == 0 || joins)
	behind := own.state == 0 && m.writer != nil && m.writer.expiry > m.ms && order != "h" && len(m.aside) == 0 &&
		(!m.alone || order == "0") && r.from == ""
	if !straight && !behind {
		if own.waits() {
			m.await(own)
		}
		m.settle()
		if own.state == 'x' && own.expiry > m.ms {
			return 3, 0
		}
		switch own = m.find(r.id); {
		case own.granted():
			m.first = own.first
			return 1, own.token
		case own.waits():
			return 0, 0
		}
	}
	enters, rival := m.enters(r, order), m.writer == nil && m.hasRival(r.from)
	switch {
	case !enters && r.from != "" && r.mode == "w" && rival:
		return 7, 0
	case enters:
		token, m.first = m.mint(r)
		m.grant(r, token, m.first, life)
		return 1, token
	case order == "0":
		return 2, 0
	case r.from != "":
		r.place = 0
	case order == "a":
		m.s++
		r.place = m.s
	default:
		r.place = 1
	}
	r.state, r.expiry = 'q', m.ms+r.claim
	m.enqueue(r)
	return 0, 0
}

func (m *model) enters(r modelHold, order string) bool {
	free := m.writer == nil && (r.mode == "r" || len(m.holds) == 0)
	switch {
	case r.from == "":
		return free && (len(m.queue) == 0 || order == "h" && !m.hasRival("") && m.queue[0].id > r.id)
	case r.mode == "w":
		return free || (m.writer == nil || m.writer.id != r.from) && m.isClear(r.from)
	case m.writer != nil && m.writer.id == r.from:
		return m.isClear(r.from)
	default:
		return free
	}
}

// isClear reports whether nobody is in the way of who converts that hold: there is only that one, what it was converted
// from, and attempts before.
func (m *model) isClear(from string) bool {
	before := ""
	if m.writer != nil {
		before = m.find(from).from
	}
	own := func(h modelHold) bool { return h.id == from || h.id == before || h.from == from }
	return (m.writer == nil || own(*m.writer)) && !slices.ContainsFunc(m.holds, func(h modelHold) bool { return !own(h) })
}

// readsClock tells whether a release goes beyond its common case.
func (m *model) releaseReadsClock(id string, tombstone int64, several bool) bool {
	own := m.find(id)
	switch {
	case len(m.queue) > 0 || len(m.aside) > 0 || tombstone > 0 && several:
		return true
	case own.state == 'w':
		return len(m.holds) > 0
	case own.state == 'g':
		return m.writer != nil || own.owner != own.id || m.alone
	default:
		return m.writer != nil || len(m.holds) > 0 || tombstone > 0
	}
}

func (m *model) release(id string, tombstone int64, several bool) (status int64) {
	straight := !m.releaseReadsClock(id, tombstone, several)
	own := m.find(id)
	switch {
	case own.granted():
		status = 1
	case own.waits():
		status = 2
	}
	if status > 0 {
		m.drop(own)
	}
	if straight {
		return status
	}
	m.purge()
	if tombstone > 0 && (several || status == 0) {
		m.drop(m.find(id)) // an older one
		m.aside = append(m.aside, modelHold{id: id, state: 'x', expiry: m.ms + tombstone})
	}
	m.admit(false)
	return status
}

func (m *model) refresh(route string, life int64, far bool, ids ...string) (statuses, tokens []int64) {
	if life > 0 {
		if m.far[0] <= m.ms {
			m.far[1] = m.ms
		}
		m.far[0] = m.ms + life
	}
	for _, id := range ids {
		own := m.find(id)
		own.unheard = own.unheard && route == "-"
		switch {
		case far && (own.state == 'q' || own.state == 'f'):
			own.state, own.begun, m.alive[id] = 'f', m.ms, true
			m.queue[slices.IndexFunc(m.queue, byID(id))] = own
		case own.waits():
			m.await(own)
		}
	}
	m.purge()
	m.admit(true)
	for _, id := range ids {
		own, status := m.find(id), int64(2)
		switch {
		case own.granted():
			status = 1
		case own.waits():
			status = 0
		}
		statuses, tokens = append(statuses, status), append(tokens, own.token*min(status%2, 1))
	}
	return statuses, tokens
}

func (m *model) renew(id string, life, token int64) (status int64) {
	own := m.find(id)
	if !own.stands(m.ms) || own.token != token {
		return 0
	}
	own.expiry = m.ms + life
	if own.latest < own.expiry {
		own.latest = own.expiry + 60_000
	}
	if own.state == 'w' {
		m.writer = &own
	} else {
		m.holds[slices.IndexFunc(m.holds, byID(id))] = own
	}
	if len(m.queue) > 0 {
		return 2
	}
	return 1
}

func (m *model) join(r modelHold, life, claim int64) (status, token int64) {
	own := m.find(r.id)
	m.settle()
	if own.state == 'x' && own.expiry > m.ms {
		return 3, 0
	}
	own = m.find(r.id)
	if own.granted() {
		return 1, own.token
	}
	var joined modelGroup
	for _, g := range m.owners[r.owner] {
		if claim == 0 || claim == g.token {
			joined = g
		}
	}
	stands := joined.mode == "r" && m.writer == nil || m.writer != nil && m.writer.owner == r.owner
	switch {
	case own.state != 0 || joined.count == 0 || !stands:
		return 0, 0
	case joined.mode == "r" && r.mode == "w":
		return 2, 0
	}
	r.mode = joined.mode
	m.grant(r, joined.token, 0, life)
	return 1, joined.token
}

func (m *model) raise(id string, token int64) (status, value int64) {
	own := m.find(id)
	switch {
	case !own.stands(m.ms) || own.token > token:
		return 0, 0
	case own.token == token:
		return 1, token
	case token > m.us+1_000_000:
		return 6, 0
	case own.mode == "w" && m.t >= token:
		return 0, 0
	}
	if own.state == 'w' && own.token < m.t {
		return 0, 0 // it is being converted
	}
	m.leave(own)
	own.token, m.t = token, max(m.t, token)
	if own.mode == "w" {
		m.tw = token
	}
	if own.owner != own.id {
		m.count(own, 1)
	}
	if own.state == 'w' {
		m.writer = &own
	} else {
		m.holds[slices.IndexFunc(m.holds, byID(id))] = own
	}
	return 1, token
}

func (m *model) yield(id string, token int64) (status, value int64) {
	m.settle()
	own := m.find(id)
	switch {
	case own.granted() && own.token == token:
		m.drop(own)
		own.again = true
		if len(m.queue) == 0 || m.queue[0].id >= id && m.queue[0].place > 0 {
			token, first := m.mint(own)
			m.grant(own, token, first, max(own.claim, own.expiry-m.ms))
			break
		}
		own.state, own.expiry, own.place, own.token = 'q', m.ms+own.claim, 1, 0
		m.enqueue(own)
		m.settle()
	case own.waits():
		m.await(own)
		m.admit(false)
	}
	switch own = m.find(id); {
	case own.granted():
		m.first = own.first
		return 1, own.token
	case own.waits():
		return 0, 0
	}
	return 2, 0
}

func (m *model) regain(r modelHold, life, token int64) (status, value int64) {
	m.purge()
	own := m.find(r.id)
	if own.granted() {
		m.admit(false)
		if own.token == token {
			return 1, token
		}
		return 0, 0
	}
	last := m.t
	if m.quorum && r.mode == "r" {
		last = m.tw
	}
	if m.writer == nil && (r.mode == "r" || len(m.holds) == 0) && own.state != 'x' && last <= token {
		m.drop(own)
		m.grant(r, token, 0, life)
		status, value = 1, token
	}
	m.admit(false)
	return status, value
}
