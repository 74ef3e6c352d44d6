//go:build unix

package testredis

import (
	"slices"
	"strconv"
	"strings"
)

// witness returns the first node that runs.
func (c *Cluster) witness() *clusterNode {
	c.t.Helper()
	for _, node := range c.nodes {
		if node.answers() {
			return node
		}
	}
	c.t.Fatal("testredis: no node of the cluster runs")
	return nil
}

func (c *Cluster) byID(id string) *clusterNode {
	for _, node := range c.nodes {
		if node.id == id {
			return node
		}
	}
	return nil
}

func (c *Cluster) byAddr(addr string) *Server {
	for _, node := range c.nodes {
		if node.Addr() == addr {
			return node.Server
		}
	}
	return nil
}

func (c *Cluster) must(node *Server, args ...string) any {
	c.t.Helper()
	reply, err := node.Command(args...)
	if err != nil {
		c.t.Fatalf("%s on %s: %v", strings.Join(args, " "), node.Addr(), err)
	}
	return reply
}

// nodeLine is one node's view of another node; see CLUSTER NODES.
type nodeLine struct {
	id, flags, replicates string
	epoch                 string   // of its slots: where two nodes claim a slot, the larger epoch wins
	slots                 []string // "7" or "0-5460"
}

func (l nodeLine) master() bool { return strings.Contains(l.flags, "master") }
func (l nodeLine) failed() bool { return slices.Contains(strings.Split(l.flags, ","), "fail") }

// known returns the nodes that a node knows, except nodes whose handshake is not complete.
func (c *Cluster) known(node *clusterNode) (lines []nodeLine) {
	reply, err := node.Command("CLUSTER", "NODES")
	text, ok := reply.(string)
	if err != nil || !ok {
		return nil
	}
	for line := range strings.Lines(text) {
		part := strings.Fields(line)
		if len(part) < 8 || strings.Contains(part[2], "handshake") || c.byID(part[0]) == nil {
			continue
		}
		slots := slices.DeleteFunc(part[8:], func(slot string) bool { return strings.HasPrefix(slot, "[") }) // moving slots
		lines = append(lines, nodeLine{id: part[0], flags: part[2], replicates: part[3], epoch: part[6], slots: slots})
	}
	return lines
}

// ownerBy returns the owner of the slot in the view of another node; nil if there is none.
func (c *Cluster) ownerBy(node *clusterNode, slot int) *clusterNode {
	for _, line := range c.known(node) {
		for _, slots := range line.slots {
			first, last, _ := strings.Cut(slots, "-")
			from, err := strconv.Atoi(first)
			to, err2 := strconv.Atoi(last)
			if err2 != nil {
				to = from
			}
			if err == nil && from <= slot && slot <= to && line.master() {
				return c.byID(line.id)
			}
		}
	}
	return nil
}
