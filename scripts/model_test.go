package scripts_test

import (
	"cmp"
	"slices"

	"github.com/stretchr/testify/require"
)

// model is one lock as prelude.lua and the headers describe it, in plain Go: who holds it, who waits in which order,
// what has been released before it came, and when each of them expires.
type model struct {
	now        int64 // server ms
	holds      []modelHold
	queue      []modelHold // in the order of service
	tombstones map[string]int64
	ownerToken map[string]int64
	token      int64 // the counter
}

type modelHold struct {
	id, owner, mode string
	expiry          int64
	token           int64
}

func newModel() *model {
	return &model{tombstones: map[string]int64{}, ownerToken: map[string]int64{}}
}

func find(in []modelHold, id string) *modelHold {
	if i := slices.IndexFunc(in, func(h modelHold) bool { return h.id == id }); i >= 0 {
		return &in[i]
	}
	return nil
}

// advance moves the clock, and lets those in who stood behind what has expired.
func (m *model) advance(us int64) {
	m.now = us / 1000
	gone := func(h modelHold) bool { return h.expiry <= m.now }
	m.holds = slices.DeleteFunc(m.holds, gone)
	m.queue = slices.DeleteFunc(m.queue, gone)
	for id, expiry := range m.tombstones {
		if expiry <= m.now {
			delete(m.tombstones, id)
		}
	}
	m.forgetOwners()
	m.admit(us)
}

func (m *model) forgetOwners() {
	for owner := range m.ownerToken {
		if m.count(owner) == 0 {
			delete(m.ownerToken, owner)
		}
	}
}

func (m *model) count(owner string) (n int64) {
	for _, h := range m.holds {
		if h.owner == owner {
			n++
		}
	}
	return n
}

func (m *model) mode() string {
	if len(m.holds) == 0 {
		return ""
	}
	return m.holds[0].mode
}

func (m *model) compatible(mode string) bool {
	return len(m.holds) == 0 || (mode == "r" && m.mode() == "r")
}

func (m *model) grant(h modelHold, us, life int64) modelHold {
	m.token = max(m.token+1, us)
	h.token, h.expiry = m.token, m.now+life
	m.ownerToken[h.owner] = h.token
	m.holds = append(m.holds, h)
	return h
}

func (m *model) admit(us int64) {
	for len(m.queue) > 0 && m.compatible(m.queue[0].mode) {
		head := m.queue[0]
		m.queue = m.queue[1:]
		m.grant(head, us, claim)
	}
}

// The requests. Each returns what the reply begins with.

func (m *model) acquire(id, owner, mode, order string, us int64) (status, token int64) {
	if _, dead := m.tombstones[id]; dead {
		return 3, 0
	}
	if h := find(m.holds, id); h != nil {
		return 1, h.token
	}
	if w := find(m.queue, id); w != nil {
		w.expiry = m.now + claim
		return 0, 0
	}
	h := modelHold{id: id, owner: owner, mode: mode}
	if len(m.queue) == 0 && m.compatible(mode) {
		return 1, m.grant(h, us, ttl).token
	}
	if order == "0" {
		return 2, 0
	}
	h.expiry = m.now + claim
	m.queue = append(m.queue, h)
	return 0, 0
}

func (m *model) join(id, owner, mode string) (status, token int64) {
	if _, dead := m.tombstones[id]; dead {
		return 3, 0
	}
	if h := find(m.holds, id); h != nil {
		return 1, h.token
	}
	if m.count(owner) == 0 {
		return 0, 0
	}
	if mode == "w" && m.mode() == "r" {
		return 2, 0
	}
	h := modelHold{id: id, owner: owner, mode: m.mode(), token: m.ownerToken[owner], expiry: m.now + ttl}
	m.holds = append(m.holds, h)
	return 1, h.token
}

func (m *model) renew(id string) (status, token int64) {
	h := find(m.holds, id)
	if h == nil {
		return 0, 0
	}
	h.expiry = max(h.expiry, m.now+ttl)
	return 1, h.token
}

func (m *model) refresh(id string) (status, token int64) {
	if h := find(m.holds, id); h != nil {
		return 1, h.token
	}
	if w := find(m.queue, id); w != nil {
		w.expiry = m.now + claim
		return 0, 0
	}
	return 2, 0
}

func (m *model) release(id string, tombstone int64, several bool, us int64) (status int64) {
	same := func(h modelHold) bool { return h.id == id }
	switch {
	case find(m.holds, id) != nil:
		status, m.holds = 1, slices.DeleteFunc(m.holds, same)
	case find(m.queue, id) != nil:
		status, m.queue = 2, slices.DeleteFunc(m.queue, same)
	}
	if tombstone > 0 && (several || status == 0) {
		m.tombstones[id] = m.now + tombstone
	}
	m.forgetOwners()
	m.admit(us)
	return status
}

// check compares a reply of inspect.lua with the model, and looks at the promises themselves.
func (m *model) check(b *bed, reply []any) {
	b.t.Helper()
	holds, queue := []modelHold{}, []modelHold{}
	for _, entry := range reply[3].([]any) {
		h := entry.([]any)
		require.Equal(b.t, m.count(h[1].(string)), h[4], "counter of %s", h[1])
		holds = append(holds, modelHold{
			id: h[0].(string), owner: h[1].(string), mode: h[2].(string), expiry: m.now + h[5].(int64), token: h[7].(int64),
		})
	}
	for _, entry := range reply[4].([]any) {
		w := entry.([]any)
		queue = append(queue, modelHold{id: w[0].(string), owner: w[1].(string), mode: w[2].(string)})
	}
	want := append([]modelHold{}, m.holds...)
	slices.SortFunc(want, func(x, y modelHold) int {
		return cmp.Or(cmp.Compare(x.expiry, y.expiry), cmp.Compare(x.id, y.id))
	})
	require.Equal(b.t, want, holds)
	waiting := append([]modelHold{}, m.queue...)
	for i := range waiting {
		waiting[i].expiry = 0
	}
	require.Equal(b.t, waiting, queue)
	require.Equal(b.t, m.mode(), reply[1])
	require.Equal(b.t, m.token, reply[2])

	owners := map[string]bool{}
	for _, h := range holds {
		owners[h.mode+h.owner] = true
		require.True(b.t, h.mode == "r" || len(owners) == 1, "a writer is not alone: %v", holds)
	}
}
