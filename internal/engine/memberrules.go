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

// rules is what all clients of a set must agree on, as the marker keeps it. Two clients with other numbers of masters
// have quorums that need not meet. One with a longer TTL has leases that outlive the quarantine of the others' making,
// and a master that forgot such a lease would vote before it has expired (case no-abstention).
func (m *membership) rules() string {
	return fmt.Sprintf("%d masters, quorum %d, longest TTL %v", len(m.e.masters), m.e.quorum(), m.e.cfg.LongestTTL)
}

// unfit is what keeps a master from being one of the set. It has no vote, and is named in the log; the others work.
type unfit string

func (u unfit) Error() string { return string(u) }

func unfitf(format string, args ...any) error { return unfit(fmt.Sprintf(format, args...)) }

// validateAlone refuses a server that must not decide alone.
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

// judge finds out which masters are fit to be one of the set, and which of these have begun another term that the set
// does not know of yet. A master that did not answer is not judged, since nothing is known of it; it does not vote
// either.
func (m *membership) judge(replies []markerReply) {
	for i := range replies {
		if c := &replies[i]; c.err == nil {
			c.unfit, c.succeeds = m.judgeServer(c), false
		}
	}
	set := m.commonSet(replies)
	seats, known := m.about(replies, set)
	// Two clients of one server would make two votes of one. Its run id tells where the ACL shows that, its seat
	// elsewhere.
	runs, taken := make(map[string]int), make(map[int]int)
	for _, marked := range []bool{true, false} { // a member has its seat before others are looked for one
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

// judgeServer looks at what the server is for itself.
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

// commonSet returns the set that counts: that of most masters, and of two with equally many the one whose masters this
// client names, then the one with the smaller id. "" where no master has a marker.
//
// Where two processes have founded one over the same masters, each without seeing what the other did, those of the
// lesser set are taken for masters without a marker, and so abstain before they vote for it.
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

// about returns what the members of a set tell of it: the addresses of its seats, and their last terms; and what this
// client has known of these before.
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

// judgeMember looks at what the server is to the set. taken are the seats that masters before it have.
//
// A server is the one in its seat if it is the process of the last term there, under whatever name it is reached. Else
// it may have restarted, or have been given the place of another by whoever directs that name, as a pair of servers
// behind one address is. Then a new term begins, with a quarantine; but only for a client that reaches the seat by its
// name. Under any other it may be a copy of the master, promoted somewhere else, while others still use the master
// itself: lists that differ in such a pair would have quorums that share no server.
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

// begins reports whether another process is in the seat than its marker and the other masters know. Where this client
// may not read the run id, another may have, and has taken the marker's id away.
func (c *markerReply) begins(seat int, known terms) bool {
	if c.run == "" {
		return c.id == "" && c.known != ""
	}
	return c.known != "" && c.known != c.run || c.terms.of(seat).replacedBy(known.of(seat))
}

// names reports whether this client reaches a seat by the name of master i: it is that of the set's founder, or has led
// there before. A group behind sentinels has no name of its own, and they see to it that it is one.
func (m *membership) names(i, seat int, seats []string) bool {
	master := m.e.masters[i]
	return !master.Standalone() || master.Addr() == seats[seat] || m.seatBefore(i) == strconv.Itoa(seat)
}

// seatOf returns the seat of master i, which has lost its marker: the one that it was seen on before, or one of its
// address, or the one whose process it is; -1 if it has none. What is none of these is another server, which must not
// be counted on: it would bring a quorum about that the real master, which may come back, knows nothing of.
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

// refuse returns an error where no quorum can come about of the masters that are fit, or where a set is to be founded
// and one of its masters is not. It names each and the rule.
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
