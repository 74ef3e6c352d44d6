package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed74116694/fencelock/internal/transport"
)

// The rules of a set of masters.

// rules is what all clients of a set must agree on, as the marker keeps it. Two clients with other numbers of masters
// have quorums that need not meet. One with a longer TTL has leases that outlive the quarantine of the others' making,
// and a master that forgot such a lease would vote before it has expired (case no-abstention).
func (m *membership) rules() string {
	return fmt.Sprintf("%d masters, quorum %d, longest TTL %v", len(m.e.masters), m.e.quorum(), m.e.cfg.LongestTTL)
}

// validate refuses a set that cannot keep what is promised. Every refusal names the master and the rule. A master that
// did not answer is not refused, since nothing is known of it; it does not vote either.
func (m *membership) validate(replies []markerReply) error {
	runs, seats := make(map[string]int), make(map[string]int)
	set := ""
	for i, c := range replies {
		where := fmt.Sprintf("master %d (%s)", i, m.e.masters[i].Addr())
		if c.err == nil && c.layout != "" && c.layout != layout {
			return fmt.Errorf("%w: %s keeps its locks in layout %s, this client in layout %s", ErrSet, where, c.layout, layout)
		}
		switch {
		case c.cluster && len(replies) == 1:
			return fmt.Errorf("%w: %s: %s", ErrSet, where, transport.ClusterAdvice)
		case c.set != "" && len(replies) == 1:
			return fmt.Errorf("%w: %s is one of %s, and alone it does not know of their locks", ErrSet, where, c.rules)
		case c.err != nil || len(replies) == 1:
			continue
		case c.role == "slave":
			return fmt.Errorf("%w: %s is a replica: it would follow another's decisions", ErrSet, where)
		case c.cluster:
			return fmt.Errorf("%w: %s is a node of a cluster: it holds only some of the names", ErrSet, where)
		case c.rules != "" && c.rules != m.rules():
			return fmt.Errorf("%w: %s was set up for %q, this client is for %q (WithQuarantine sets the longest TTL)",
				ErrSet, where, c.rules, m.rules())
		case set != "" && c.set != "" && c.set != set:
			return fmt.Errorf("%w: %s belongs to another set of masters than those before it", ErrSet, where)
		}
		// Two clients of one server would make two votes of one. Its run id tells where the ACL shows that, its seat
		// elsewhere.
		for _, seen := range []struct {
			by  map[string]int
			key string
		}{{runs, c.run}, {seats, c.seat}} {
			if other, twice := seen.by[seen.key]; twice && seen.key != "" {
				return fmt.Errorf("%w: %s and master %d (%s) are the same server", ErrSet, where, other, m.e.masters[other].Addr())
			}
			seen.by[seen.key] = i
		}
		if c.set != "" {
			set = c.set
		}
	}
	return nil
}

// refusedMember names a server that answers in the place of a master, without its marker and at another address. Taken
// for that master it would bring a quorum about that the real one, which may come back, knows nothing of.
func (m *membership) refusedMember(i int, seats []string) error {
	return fmt.Errorf("%w: master %d (%s) has no marker, and the set that the others belong to has its masters at %v",
		ErrSet, i, m.e.masters[i].Addr(), seats)
}

// sameMasters reports whether seats are the addresses of this engine's masters, in whatever order.
func (m *membership) sameMasters(seats string) bool {
	theirs := strings.Fields(seats)
	ours := make([]string, 0, len(m.e.masters))
	for _, master := range m.e.masters {
		ours = append(ours, master.Addr())
	}
	slices.Sort(theirs)
	slices.Sort(ours)
	return slices.Equal(theirs, ours)
}
