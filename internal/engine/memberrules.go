package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed74116694/fencelock/internal/joined"
	"github.com/seed74116694/fencelock/internal/transport"
)

// The rules of a set of masters.

// rules returns what all clients of a set must agree on, as the marker stores it. Clients with different numbers of
// masters have quorums that need not intersect. A client with a longer TTL has leases that outlive a quarantine that
// another client set, and a master that forgot such a lease would vote before the lease has expired (case
// no-abstention).
func (m *membership) rules() string {
	return fmt.Sprintf("%d masters, quorum %d, longest TTL %v", len(m.e.masters), m.e.quorum(), m.e.cfg.LongestTTL)
}

// unfit is the reason that a master cannot belong to the set. The master has no vote and is named in the log. The set
// works with the remaining masters.
type unfit string

func (u unfit) Error() string { return string(u) }

func unfitf(format string, args ...any) error { return unfit(fmt.Sprintf(format, args...)) }

// validateAlone returns an error for a server that must not be used as a single master.
func (m *membership) validateAlone(c markerReply) error {
	where := fmt.Sprintf("master 0 (%s)", m.e.masters[0].Addr())
	switch {
	case c.err == nil && c.layout != "" && c.layout != layout:
		return fmt.Errorf("%w: %s %w", ErrSet, where, otherLayout(c))
	case c.cluster:
		return fmt.Errorf("%w: %s: %s", ErrSet, where, transport.ClusterAdvice)
	case c.set != "":
		return fmt.Errorf("%w: %s is one of %s, and alone it does not know of their locks", ErrSet, where, c.rules)
	}
	return nil
}

func otherLayout(c markerReply) error {
	return unfitf("keeps its locks in layout %s, this client in layout %s", c.layout, layout)
}

// judge finds the masters that are fit to belong to the set, and the masters among them that must begin a term that the
// set does not know. A master that did not answer is not judged, because nothing is known about it, and it does not
// vote either.
func (m *membership) judge(replies []markerReply) {
	for i := range replies {
		if c := &replies[i]; c.err == nil {
			c.unfit, c.succeeds = m.judgeServer(c), false
		}
	}
	set := m.commonSet(replies)
	seats, known := m.about(replies, set)
	// Two clients of one server would turn its vote into two. The run id shows this if the ACL permits reading it.
	// Otherwise the seat does.
	runs, taken := make(map[string]int), make(map[int]int)
	for _, marked := range []bool{true, false} { // members take their seats before the rest look for one
		for i := range replies {
			c := &replies[i]
			if c.err != nil || c.unfit != nil || (c.set != "") != marked {
				continue
			}
			if set != "" {
				m.judgeMember(i, c, set, seats, known, taken)
			}
			if other, twice := runs[c.run]; twice && c.run != "" && c.unfit == nil {
				c.unfit = m.sameServer(other)
			}
			if c.unfit == nil {
				runs[c.run] = i
			}
		}
	}
}

// judgeServer checks the server by itself, without regard to the set.
func (m *membership) judgeServer(c *markerReply) error {
	switch {
	case c.layout != "" && c.layout != layout:
		return otherLayout(*c)
	case c.role == "slave":
		return unfit("is a replica: it would follow another's decisions")
	case c.cluster:
		return unfit("is a node of a cluster: it holds only some of the names")
	case c.rules != "" && c.rules != m.rules():
		return unfitf("was set up for %q, this client is for %q (WithQuarantine sets the longest TTL)", c.rules, m.rules())
	}
	return nil
}

func (m *membership) sameServer(other int) error {
	return unfitf("is the same server as master %d (%s)", other, m.e.masters[other].Addr())
}

// commonSet returns the id of the set that counts: the set that most masters belong to. Of sets with equally many
// masters, a set whose masters this client names comes first, then the set with the smaller id. The result is "" if no
// master has a marker.
//
// Two processes may each have founded a set over the same masters without seeing the other's markers. The masters of
// the losing set are then treated as masters without a marker, so they abstain before they vote for the common set.
func (m *membership) commonSet(replies []markerReply) (best string) {
	type candidate struct {
		members int
		ours    bool
	}
	sets := make(map[string]candidate)
	for _, c := range replies {
		if c.err == nil && c.unfit == nil && c.set != "" {
			sets[c.set] = candidate{sets[c.set].members + 1, m.sameMasters(c.seats)}
		}
	}
	for set, s := range sets {
		b := sets[best]
		switch {
		case best == "" || s.members > b.members:
			best = set
		case s.members == b.members && s.ours != b.ours:
			if s.ours {
				best = set
			}
		case s.members == b.members && set < best:
			best = set
		}
	}
	for i := range replies {
		if c := &replies[i]; c.set != "" && c.set != best && c.unfit == nil && m.sameMasters(c.seats) {
			c.rival, c.set = c.set, ""
		}
	}
	return best
}

// about returns what is known about a set: the addresses of its seats from its members, and the last terms of these
// seats from its members and from what this client has seen before.
func (m *membership) about(replies []markerReply, set string) (seats []string, known terms) {
	known = m.termsOf(set)
	for _, c := range replies {
		if c.err == nil && c.unfit == nil && c.set == set {
			seats = strings.Fields(c.seats)
			known.learn(c.terms)
		}
	}
	return seats, known
}

// judgeMember checks the server against the set. taken maps the seats of earlier masters to these masters.
//
// A server holds its seat if it is the process of the last term there, whatever name the client reaches it by. Any
// other process may be a restart of the server, or a server that took over the name of the seat, as in a pair of
// servers behind one address. Then a new term begins, with a quarantine, but only for a client that reaches the seat by
// its name. A process reached by any other name may be a copy of the master that was promoted elsewhere while other
// clients still use the master itself. Two lists of masters that differ in such a pair would have quorums that share no
// server.
func (m *membership) judgeMember(
	i int, c *markerReply, set string, seats []string, known terms, taken map[int]int,
) {
	if c.set == "" {
		seat := m.seatOf(i, c, seats, known, taken)
		if seat < 0 {
			c.unfit = unfitf("has no marker, and the set that the others belong to has its masters at %v", seats)
			return
		}
		taken[seat] = i
		c.seat = strconv.Itoa(seat)
		return
	}
	seat, err := strconv.Atoi(c.seat)
	switch {
	case c.set != set:
		c.unfit = unfit("belongs to another set of masters than most of the others")
	case err != nil || seat < 0 || seat >= len(seats):
		c.unfit = unfitf("has a malformed marker: seat %q of %d", c.seat, len(seats))
	case c.begins(seat, known):
		if c.succeeds = m.names(i, seat, seats) || c.run != "" && known.of(seat).run == c.run; !c.succeeds {
			c.unfit = unfitf("is another server than the one at %s whose marker it has, and is not reached by that name",
				seats[seat])
		}
	}
	if c.unfit != nil {
		return
	}
	if other, twice := taken[seat]; twice {
		c.unfit = m.sameServer(other)
		return
	}
	taken[seat] = i
}

// begins reports whether the process in the seat is another than its marker and the other masters know. A client that
// may not read the run id relies on the marker's id, which the vote of a client that may read it removes when the run
// id has changed.
func (c *markerReply) begins(seat int, known terms) bool {
	if c.run == "" {
		return c.id == "" && c.known != ""
	}
	return c.known != "" && c.known != c.run || c.terms.of(seat).replacedBy(known.of(seat))
}

// names reports whether this client reaches the seat by the name of master i: the name is the founder's name for the
// seat, or has led to the seat before. A group of servers behind sentinels has no name of its own. The sentinels ensure
// that the client reaches the right group.
func (m *membership) names(i, seat int, seats []string) bool {
	master := m.e.masters[i]
	return !master.Standalone() || master.Addr() == seats[seat] || m.seatBefore(i) == strconv.Itoa(seat)
}

// seatOf returns the seat of master i, which has lost its marker: the seat where it was last seen, or a seat with its
// address, or the seat of its process. It returns -1 if there is none. Then the master is another server and must not
// count: it would complete a quorum that the real master, which may come back, knows nothing about.
func (m *membership) seatOf(i int, c *markerReply, seats []string, known terms, taken map[int]int) int {
	free := func(seat int) bool { _, is := taken[seat]; return !is }
	if before, err := strconv.Atoi(m.seatBefore(i)); err == nil && before < len(seats) && free(before) {
		return before
	}
	addr := m.e.masters[i].Addr()
	if i < len(seats) && seats[i] == addr && free(i) {
		return i
	}
	for seat := range seats {
		if seats[seat] == addr && free(seat) {
			return seat
		}
	}
	for seat := range seats {
		if c.run != "" && known.of(seat).run == c.run && free(seat) {
			return seat
		}
	}
	return -1
}

// refuse returns an error if the masters that are fit cannot form a quorum, or if a set is to be founded and one of its
// masters is not fit. The error names each unfit master and the rule it breaks.
func (m *membership) refuse(replies []markerReply) error {
	var all []error
	marked := 0
	for i, c := range replies {
		if c.unfit != nil {
			all = append(all, fmt.Errorf("master %d (%s) %w", i, m.e.masters[i].Addr(), c.unfit))
		} else if c.err == nil && c.set != "" {
			marked++
		}
	}
	if len(all) == 0 || marked > 0 && len(replies)-len(all) >= m.e.quorum() {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrSet, joined.Errors(all...))
}

// sameMasters reports whether seats are the addresses of this engine's masters, in any order.
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
