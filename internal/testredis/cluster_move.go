//go:build unix

package testredis

import (
	"strconv"
	"strings"
)

// Move is a slot that is moving from one master to another. Until End both masters serve it: the old one serves the
// keys that it still has, and the new one serves the keys that have moved, for clients that send ASKING.
type Move struct {
	c        *Cluster
	slot     string
	from, to *clusterNode
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(key string) int {
	c.t.Helper()
	return int(c.must(c.witness().Server, "CLUSTER", "KEYSLOT", key).(int64))
}

// Owner returns the master that has the slot.
func (c *Cluster) Owner(slot int) *Server {
	c.t.Helper()
	owner := c.ownerBy(c.witness(), slot)
	if owner == nil {
		c.t.Fatalf("testredis: nobody has slot %d", slot)
	}
	return owner.Server
}

// Another returns a master other than the given one.
func (c *Cluster) Another(than *Server) *Server {
	c.t.Helper()
	for _, master := range c.Masters() {
		if master != than {
			return master
		}
	}
	c.t.Fatal("testredis: there is no other master")
	return nil
}

// BeginMove starts to move a slot to another master, and stops there: the keys of the slot stay where they are.
func (c *Cluster) BeginMove(slot int, to *Server) *Move {
	c.t.Helper()
	m := &Move{c: c, slot: strconv.Itoa(slot), from: c.ownerBy(c.witness(), slot)}
	for _, node := range c.nodes {
		if node.Server == to {
			m.to = node
		}
	}
	if m.from == nil || m.to == nil || m.from == m.to {
		c.t.Fatalf("testredis: slot %d cannot be moved to %s", slot, to.Addr())
	}
	c.must(m.to.Server, "CLUSTER", "SETSLOT", m.slot, "IMPORTING", m.from.id)
	c.must(m.from.Server, "CLUSTER", "SETSLOT", m.slot, "MIGRATING", m.to.id)
	return m
}

// Key moves one key of the slot.
func (m *Move) Key(key string) {
	m.c.t.Helper()
	m.c.migrating.Lock()
	defer m.c.migrating.Unlock()
	await(m.c.t, "the key "+key+" has moved", func() bool {
		_, err := m.from.Command("MIGRATE", "127.0.0.1", strconv.Itoa(m.to.Port()), key, "0", "4000", "REPLACE")
		if err != nil && !strings.HasPrefix(err.Error(), "IOERR") { // after IOERR the key may have moved
			m.c.t.Fatalf("testredis: MIGRATE %s: %v", key, err)
		}
		return err == nil
	})
}

// Keys moves all keys of the slot.
func (m *Move) Keys() {
	m.c.t.Helper()
	for {
		keys := m.c.must(m.from.Server, "CLUSTER", "GETKEYSINSLOT", m.slot, "100").([]any)
		if len(keys) == 0 {
			return
		}
		for _, key := range keys {
			m.Key(key.(string))
		}
	}
}

// End moves the remaining keys and gives the slot to its new owner. All nodes know of it when End returns.
//
// One slot is given away at a time, until all nodes agree on it and on the epoch of its new owner. The new owner takes
// a larger epoch than it knows of, without asking another node. If the old owner had a larger epoch that the new owner
// did not know of, then a message that the old owner sent before it gave up the slot would win the slot back. Neither
// would serve it then: each of the two would consider the other the owner.
func (m *Move) End() {
	m.c.t.Helper()
	m.c.assigning.Lock()
	defer m.c.assigning.Unlock()
	m.give()
	m.c.WaitReady()
}

func (m *Move) give() {
	m.c.t.Helper()
	m.Keys()
	m.c.must(m.to.Server, "CLUSTER", "SETSLOT", m.slot, "NODE", m.to.id)
	m.Keys()
	for _, master := range m.c.Masters() {
		m.c.must(master, "CLUSTER", "SETSLOT", m.slot, "NODE", m.to.id)
	}
}

// Reshard moves slots, one after the other, with their keys from their owner to another master. It returns when all
// nodes know of it.
func (c *Cluster) Reshard(first, last int, to *Server) {
	c.t.Helper()
	c.assigning.Lock()
	defer c.assigning.Unlock()
	for slot := first; slot <= last; slot++ {
		c.BeginMove(slot, to).give()
	}
	c.WaitReady()
}
