package masterset

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/internal/errs"
)

// ErrUnusable is a set of masters that must not be used together.
var ErrUnusable = errors.New("unusable set of masters")

// state is what one master is to the set.
type state uint8

const (
	silent   state = iota // it did not answer; nothing is known about it, and it does not vote
	unfit                 // it breaks a rule, and has no vote
	unmarked              // it has no marker, or the marker of a set of the same masters that lost to the common set
	replaced              // it has a seat with another process than before, and votes only when the next term has begun
	member                // it belongs to the set
)

// finding is the last reply of one master, and what follows from it.
type finding struct {
	reply
	state  state
	defect error  // the rule that an unfit master breaks
	seat   int    // of an unmarked master the seat that it may take; -1 if there is none yet
	rival  string // the set that an unmarked master has to leave, or ""
}

// marked reports whether the master belongs to the set, although the term of its process may have to begin first.
func (f finding) marked() bool { return f.state == member || f.state == replaced }

// inOrder reports whether the master may vote, unless it abstains.
func (f finding) inOrder() bool { return f.state == member && f.marker.id != "" }

// server names one master in the client's list.
type server interface {
	Addr() string
}

// view is what the rules need besides the replies. No rule changes it.
type view struct {
	masters    []server // the client's list
	longestTTL time.Duration
	history
}

// history is what earlier bootstraps have found.
type history struct {
	set   string // id of the set that the masters belong to
	seats []int  // by master: its seat when it was last in order, or -1
	terms terms  // of the set's seats
}

func (v *view) quorum() int { return len(v.masters)/2 + 1 }

// rules returns what all clients of a set must agree on, as the marker stores it. Clients with different numbers of
// masters have quorums that need not intersect. A client with a longer TTL has leases that outlive a quarantine that
// another client set, and a master that forgot such a lease would vote before the lease has expired (case
// no-abstention).
func (v *view) rules() string {
	return fmt.Sprintf("%d masters, quorum %d, longest TTL %v", len(v.masters), v.quorum(), v.longestTTL)
}

func otherLayout(r reply) error {
	return fmt.Errorf("keeps its locks in layout %s, this client in layout %s", r.marker.layout, layout)
}

// judge finds what each of several masters is to the set. The findings depend on each other: on the set that most
// masters belong to, and on the seats and the processes of the masters before.
func (v *view) judge(replies []reply) []finding {
	all := make([]finding, len(replies))
	for i, r := range replies {
		all[i] = v.judgeServer(r)
	}
	set := v.commonSet(all)
	known := v.seating(all, set)
	// Two clients of one server would turn its vote into two. The run id shows this if the ACL permits reading it.
	// Otherwise the seat does.
	processes := make(map[string]int)
	for _, marked := range []bool{true, false} { // members take their seats before the remaining masters look for one
		for i := range all {
			f := &all[i]
			if f.state == silent || f.state == unfit || f.marked() != marked {
				continue
			}
			if set != "" {
				v.place(i, f, known)
			}
			if f.state == unfit {
				continue
			}
			if other, twice := processes[f.run]; twice && f.run != "" {
				f.refuse(v.sameServer(other))
				continue
			}
			processes[f.run] = i
		}
	}
	return all
}

// judgeServer checks the server by itself, without regard to the set.
func (v *view) judgeServer(r reply) finding {
	f := finding{reply: r, state: member, seat: -1}
	switch {
	case r.err != nil:
		f.state = silent
	case r.marker.layout != "" && r.marker.layout != layout:
		f.refuse(otherLayout(r))
	case r.role == "slave":
		f.refuse(errors.New("is a replica: it would follow another's decisions"))
	case r.cluster:
		f.refuse(errors.New("is a node of a cluster: it holds only some of the names"))
	case r.marker.rules != "" && r.marker.rules != v.rules():
		f.refuse(fmt.Errorf("was set up for %q, this client is for %q (WithQuarantine sets the longest TTL)",
			r.marker.rules, v.rules()))
	case r.marker.set == "":
		f.state = unmarked
	}
	return f
}

// refuse makes the master unfit. It has no vote and is named in the log, and the set works with the remaining masters.
func (f *finding) refuse(defect error) { f.state, f.defect = unfit, defect }

func (v *view) sameServer(other int) error {
	return fmt.Errorf("is the same server as master %d (%s)", other, v.masters[other].Addr())
}

// commonSet returns the id of the set that most of the fit masters belong to. Of sets with equally many masters, a set
// whose masters this client names comes first, then the set with the smaller id. The result is "" if no master has a
// marker.
//
// Two processes may each have founded a set over the same masters without seeing the other's markers. The masters of
// the losing set then count as unmarked, so they abstain before they vote for the common set.
func (v *view) commonSet(all []finding) (best string) {
	type candidate struct {
		members int
		ours    bool
	}
	sets := make(map[string]candidate)
	for _, f := range all {
		if f.state == member {
			set := f.marker.set
			sets[set] = candidate{sets[set].members + 1, v.sameMasters(f.marker.seats)}
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
	for i := range all {
		if f := &all[i]; f.state == member && f.marker.set != best && v.sameMasters(f.marker.seats) {
			f.state, f.rival = unmarked, f.marker.set
		}
	}
	return best
}

// sameMasters reports whether seats are the addresses of this client's masters, in any order.
func (v *view) sameMasters(seats string) bool {
	theirs := strings.Fields(seats)
	ours := make([]string, 0, len(v.masters))
	for _, m := range v.masters {
		ours = append(ours, m.Addr())
	}
	slices.Sort(theirs)
	slices.Sort(ours)
	return slices.Equal(theirs, ours)
}

// seating is a set as its members know it, and who sits in it.
type seating struct {
	set   string
	addrs []string    // by seat: the address by which the founder named it
	terms terms       // the last terms, also those that this client has seen before
	taken map[int]int // by seat: the master of this client that has it
	admit bool        // the set may take in masters that this client has not seen there
}

func (v *view) seating(all []finding, set string) *seating {
	s, members := &seating{set: set, terms: v.termsOf(set), taken: make(map[int]int)}, 0
	for _, f := range all {
		if f.state == member && f.marker.set == set {
			s.addrs = strings.Fields(f.marker.seats)
			s.terms.learn(f.marker.terms)
			s.admit = s.admit || v.sameMasters(f.marker.seats)
			members++
		}
	}
	s.admit = s.admit || members >= v.quorum()
	return s
}

// termsOf returns the last terms of a set's seats that this client has seen.
func (v *view) termsOf(set string) terms {
	if set != v.set {
		return nil
	}
	return slices.Clone(v.terms)
}

// seatOf returns the seat in which the master was last in order, or -1 if that was in another set.
func (v *view) seatOf(i int, set string) int {
	if set != v.set {
		return -1
	}
	return v.seats[i]
}

// place finds the seat of a master, and whether its process may sit there.
//
// A server holds its seat if it is the process of the last term there, whatever name the client reaches it by. Any
// other process may be a restart of the server, or a server that took over the name of the seat, as in a pair of
// servers behind one address. Then a new term begins, with a quarantine, but only for a client that reaches the seat by
// its name. A process reached by any other name may be a copy of the master that was promoted elsewhere while other
// clients still use the master itself. Two lists of masters that differ in such a pair would have quorums that share no
// server.
func (v *view) place(i int, f *finding, s *seating) {
	if f.state == unmarked {
		if f.seat = v.freeSeat(i, f, s); f.seat < 0 {
			f.refuse(fmt.Errorf("has no marker, and the set that the others belong to has its masters at %v", s.addrs))
			return
		}
		s.taken[f.seat] = i
		return
	}
	seat, err := strconv.Atoi(f.marker.seat)
	switch {
	case f.marker.set != s.set:
		f.refuse(errors.New("belongs to another set of masters than most of the others; " +
			"where saves of before a replacement came back, delete PREFIX:master on all masters"))
		return
	case err != nil || seat < 0 || seat >= len(s.addrs):
		f.refuse(fmt.Errorf("has a malformed marker: seat %q of %d", f.marker.seat, len(s.addrs)))
		return
	case !f.isLast(seat, s.terms):
		if !v.names(i, seat, s) && (f.run == "" || s.terms.of(seat).run != f.run) {
			f.refuse(fmt.Errorf("is another server than the one at %s whose marker it has, and is not reached by that name",
				s.addrs[seat]))
			return
		}
		f.state = replaced
	}
	if other, twice := s.taken[seat]; twice {
		f.refuse(v.sameServer(other))
		return
	}
	f.seat = seat
	s.taken[seat] = i
}

// isLast reports whether the process is the one that its marker and the other masters know in the seat. A client that
// may not read the run id relies on the marker's id, which the vote of a client that may read it removes when the run
// id has changed.
func (f *finding) isLast(seat int, known terms) bool {
	if f.run == "" {
		return f.marker.id != "" || f.marker.run == ""
	}
	return (f.marker.run == "" || f.marker.run == f.run) && !f.marker.terms.of(seat).replacedBy(known.of(seat))
}

// names reports whether this client reaches the seat by the name of master i: the name is the founder's name for the
// seat, or has led to the seat before.
func (v *view) names(i, seat int, s *seating) bool {
	return v.masters[i].Addr() == s.addrs[seat] || v.seatOf(i, s.set) == seat
}

// freeSeat returns the seat of master i, which has lost its marker: the seat where it was last in order, or a seat with
// its address, or the seat of its process. It returns -1 if there is none. Then the master is another server and must
// not count: it would complete a quorum that the real master, which may come back, knows nothing about.
//
// A set of other masters than this client's takes in none by its address or process, unless a quorum belongs to it. It
// may be the set of before a replacement, which a master shows that was away then, while the present set is silent.
func (v *view) freeSeat(i int, f *finding, s *seating) int {
	free := func(seat int) bool { _, is := s.taken[seat]; return !is }
	if before := v.seatOf(i, s.set); before >= 0 && before < len(s.addrs) && free(before) {
		return before
	}
	if !s.admit {
		return -1
	}
	addr := v.masters[i].Addr()
	if i < len(s.addrs) && s.addrs[i] == addr && free(i) {
		return i
	}
	for seat := range s.addrs {
		if s.addrs[seat] == addr && free(seat) {
			return seat
		}
	}
	for seat := range s.addrs {
		if f.run != "" && s.terms.of(seat).run == f.run && free(seat) {
			return seat
		}
	}
	return -1
}

// refusal returns an error if the masters that are fit cannot form a quorum, or if a set is to be founded and one of
// its masters is not fit. The error names each unfit master and the rule that it breaks. A silent master counts as fit,
// and while one is silent no set need be founded, because that master may have a marker.
func (v *view) refusal(all []finding) error {
	var defects []error
	marked, silence := 0, 0
	for i, f := range all {
		switch {
		case f.state == unfit:
			defects = append(defects, fmt.Errorf("master %d (%s) %w", i, v.masters[i].Addr(), f.defect))
		case f.state == silent:
			silence++
		case f.marked():
			marked++
		}
	}
	if len(defects) == 0 || marked+silence > 0 && len(all)-len(defects) >= v.quorum() {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnusable, errs.Join(defects...))
}

// term identifies the process in a seat of a set, as a marker records it: the number of the process in the seat, and
// its run id. The next term begins whenever the server restarts or another server takes its place.
type term struct {
	number uint64 // 0: no process is known
	run    string // empty if no client may read it
}

// terms are the last known terms, by seat.
type terms []term

func (t terms) of(seat int) term {
	if seat >= len(t) {
		return term{}
	}
	return t[seat]
}

// learn takes over the later terms of other.
func (t *terms) learn(other terms) {
	for seat, one := range other {
		if seat == len(*t) {
			*t = append(*t, one)
		} else if one.number > (*t)[seat].number {
			(*t)[seat] = one
		}
	}
}

// misses reports whether other has a later term of any seat.
func (t terms) misses(other terms) bool {
	for seat, one := range other {
		if one.number > t.of(seat).number {
			return true
		}
	}
	return false
}

// replacedBy reports whether the process of this term is not in its seat any more. Two processes may have begun the
// same term if some clients reached the first and some the second. Then neither process holds the seat.
func (t term) replacedBy(last term) bool {
	return last.number > t.number || last.number == t.number && last.run != t.run && last.run != "" && t.run != ""
}
