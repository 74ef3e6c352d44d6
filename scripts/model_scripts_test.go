package scripts_test

import "slices"

// The scripts of the model. Each returns the status and the token of the reply.

func (m *model) acquire(r modelHold, order string, life int64) (status, token int64) {
	own := m.find(r.id)
	quiet := len(m.queue) == 0 && len(m.aside) == 0 && own.state == 0 && m.writer == nil
	joins := r.mode == "r" && r.owner == r.id && len(m.holds)%64 > 0
	straight := quiet && (!m.alone || r.mode == "w") && (len(m.holds) == 0 || joins)
	behind := own.state == 0 && m.writer != nil && m.writer.expiry > m.ms && order != "h" && len(m.aside) == 0 &&
		(!m.alone || order == "0") && r.from == ""
	if !straight && !behind {
		if own.state == 'x' && own.expiry > m.ms {
			return 3, 0
		}
		if own.waits() {
			m.await(own)
		}
		m.settle()
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
	if own := m.find(r.id); own.state == 'x' && own.expiry > m.ms {
		return 3, 0
	}
	m.settle()
	own := m.find(r.id)
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
