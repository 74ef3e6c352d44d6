package lockdebug

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// shown is a lease or a waiter before it becomes a row.
type shown struct {
	rwlock.LeaseState
	of        *group
	broken    bool // of another process, which has not heard of it
	brokenBy  string
	brokenWhy string
	unknown   bool // a lock that may be held
	ended     bool // it stands for its minimum
	detached  bool // its process has left it
}

// rank is 0 for what is lost, 1 for what is late, and 2 for what is in order.
func (s *shown) rank() int {
	switch {
	case s.Err != nil && !s.RenewalLate:
		return 0
	case s.RenewalLate, s.Unreachable, s.broken:
		return 1
	default:
		return inOrder
	}
}

const inOrder = 2

// byUrgency orders the rows of a lock: what is lost or late, and then what has lasted longest.
func byUrgency(a, b shown) int {
	return cmp.Or(cmp.Compare(a.rank(), b.rank()), a.Since.Compare(b.Since), cmp.Compare(a.Hold, b.Hold))
}

// group is a lock. Its numbers count also what a search does not find.
type group struct {
	name             string
	holders, waiting int
	held, waited     time.Time // since when the longest; zero without one
	rank             int       // of its most urgent row
	unknown          bool      // it may be held
	found            bool      // a row of it
}

func newGroup(name string) *group { return &group{name: name, rank: inOrder} }

// count adds a lease or a waiter to the numbers of its lock.
func (g *group) count(s shown) {
	g.rank = min(g.rank, s.rank())
	n, since := &g.holders, &g.held
	switch {
	case s.unknown:
		g.unknown = true
		return
	case s.Waiting:
		n, since = &g.waiting, &g.waited
	}
	if *n++; since.IsZero() || s.Since.Before(*since) {
		*since = s.Since
	}
}

// orders has the values of the parameter sort. Those with a name order as fencelock list does.
var orders = map[string]func(a, b *group) int{
	"":        byNeed,
	"name":    func(a, b *group) int { return cmp.Compare(a.name, b.name) },
	"held":    func(a, b *group) int { return earlier(a.held, b.held) },
	"waiting": func(a, b *group) int { return cmp.Compare(b.waiting, a.waiting) },
}

// byNeed orders locks as an operator looks for them at night: what is lost or late, then the longest wait, and then the
// oldest holder.
func byNeed(a, b *group) int {
	return cmp.Or(cmp.Compare(a.rank, b.rank), earlier(a.waited, b.waited), earlier(a.held, b.held))
}

// earlier orders times. A zero time comes last.
func earlier(a, b time.Time) int {
	switch {
	case a.IsZero() == b.IsZero():
		return a.Compare(b)
	case a.IsZero():
		return 1
	default:
		return -1
	}
}

// gathering collects the rows of an answer: the first maxRows of the leases, and of the waiters. Its memory does not
// grow with their numbers.
type gathering struct {
	request
	wanted          string // the text that is searched for, in lower case
	order           func(a, b *group) int
	leases, waiters *top
	locks, all      int // the locks that were found, and those that the filter "waiting" has left out too
}

func gather(r request) *gathering {
	g := &gathering{request: r, wanted: strings.ToLower(r.Search)}
	g.order = func(a, b *group) int { return cmp.Or(orders[r.Sort](a, b), cmp.Compare(a.name, b.name)) }
	rows := func(a, b shown) int { return cmp.Or(g.order(a.of, b.of), byUrgency(a, b)) }
	g.leases, g.waiters = newTop(rows), newTop(rows)
	return g
}

// add adds a lease or a waiter of a lock that has been counted.
func (g *gathering) add(s shown) {
	if !stateContains(s, g.wanted) {
		return
	}
	left := g.Waiting && s.of.waiting == 0
	if !s.of.found {
		s.of.found = true
		if g.all++; !left {
			g.locks++
		}
	}
	switch {
	case left:
	case s.Waiting:
		g.waiters.add(s)
	default:
		g.leases.add(s)
	}
}

// top keeps the first maxRows of any number of states.
type top struct {
	order func(a, b shown) int
	rows  []shown // at most twice maxRows
	total int
}

func newTop(order func(a, b shown) int) *top { return &top{order: order} }

func (t *top) add(s shown) {
	t.total++
	if t.rows = append(t.rows, s); len(t.rows) == 2*maxRows {
		t.rows = t.sorted()
	}
}

func (t *top) sorted() []shown {
	slices.SortStableFunc(t.rows, t.order)
	return t.rows[:min(len(t.rows), maxRows)]
}

// stateContains reports whether a search finds the row of a lease or a waiter.
func stateContains(s shown, wanted string) bool {
	if containsAny(wanted, s.Name, s.Mode.String(), s.Owner, s.Hold, s.Meta, s.brokenBy, s.brokenWhy) {
		return true
	}
	if s.Token > 0 && containsAny(wanted, s.Token.String()) || s.Err != nil && containsAny(wanted, s.Err.Error()) {
		return true
	}
	return s.Behind != nil && containsAny(wanted, s.Behind.Owner, s.Behind.Hold, s.Behind.Meta)
}

// containsAny reports whether a text contains wanted, which is in lower case. Every text contains "".
func containsAny(wanted string, texts ...string) bool {
	return wanted == "" || slices.ContainsFunc(texts, func(text string) bool {
		return strings.Contains(strings.ToLower(text), wanted)
	})
}
