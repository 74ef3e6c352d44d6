package lockdebug

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// snapshot is what an answer shows.
type snapshot struct {
	Process      string         `json:"process,omitempty"` // host:pid
	Redis        string         `json:"redis,omitempty"`   // instead, of ListHandler
	Errors       []string       `json:"errors,omitempty"`  // of servers
	Unknown      bool           `json:"unknown,omitempty"` // held locks may be missing
	Now          time.Time      `json:"now"`
	Search       string         `json:"search"`
	Leases       []leaseRow     `json:"leases"`
	LeasesTotal  int            `json:"leases_total"` // that the search has found, of which Leases may be a part
	Waiters      []waiterRow    `json:"waiters"`
	WaitersTotal int            `json:"waiters_total"`
	Losses       []lossRow      `json:"losses"` // the newest first
	Stats        map[string]any `json:"stats"`
	StatRows     []statRow      `json:"-"`
	Breaks       bool           `json:"-"` // the page has links to break holds
}

// Title is what the page is about.
func (s *snapshot) Title() string { return cmp.Or(s.Redis, s.Process) }

type leaseRow struct {
	Name        string        `json:"name"`
	Mode        string        `json:"mode"`
	Token       fencing.Token `json:"token"` // 0: of a lock that is kept without a user
	Owner       string        `json:"owner"`
	Hold        string        `json:"hold"`
	Meta        string        `json:"meta"`
	Since       time.Time     `json:"since"`
	HeldMS      int64         `json:"held_ms"`
	LeftMS      int64         `json:"left_ms"` // 0 after a loss
	Lost        bool          `json:"lost"`    // the holders of an RWMutex have not unlocked it
	RenewalLate bool          `json:"renewal_late"`
	Error       string        `json:"error,omitempty"`
	Count       int           `json:"count"`
	Shared      bool          `json:"shared"` // by the goroutines of an RWMutex
	Lingering   bool          `json:"lingering"`
	Unknown     bool          `json:"unknown,omitempty"`  // the lock may be held
	Ended       bool          `json:"ended,omitempty"`    // released, and kept by WithMinHold
	Broken      bool          `json:"broken"`             // it cannot be renewed, and its process has not heard of it
	Detached    bool          `json:"detached,omitempty"` // left to another process
}

type waiterRow struct {
	Name        string     `json:"name"`
	Mode        string     `json:"mode"`
	Owner       string     `json:"owner,omitempty"`
	Hold        string     `json:"hold,omitempty"` // none: it waits for goroutines of this process
	Meta        string     `json:"meta"`
	Since       time.Time  `json:"since"`
	WaitedMS    int64      `json:"waited_ms"`
	Shared      bool       `json:"shared"`
	Converting  bool       `json:"converting"`
	Unreachable bool       `json:"unreachable"` // no quorum answers
	Behind      *behindRow `json:"behind,omitempty"`
}

// behindRow is a holder that was in the way when the waiter queued.
type behindRow struct {
	Owner string `json:"owner"`
	Hold  string `json:"hold"`
	Meta  string `json:"meta"`
	Mode  string `json:"mode"`
}

type lossRow struct {
	At     time.Time     `json:"at"`
	AgoMS  int64         `json:"ago_ms"`
	Name   string        `json:"name"`
	Mode   string        `json:"mode"`
	Token  fencing.Token `json:"token"`
	Owner  string        `json:"owner"`
	Hold   string        `json:"hold"`
	Meta   string        `json:"meta"`
	Reason string        `json:"reason"`
	Error  string        `json:"error"`
}

type statRow struct {
	Name  string
	Value any
}

// maxRows bounds how many leases and how many waiters an answer shows.
const maxRows = 500

// shown is a lease or a waiter before it becomes a row.
type shown struct {
	rwlock.LeaseState
	broken   bool // of another process, which has not heard of it
	unknown  bool // a lock that may be held
	ended    bool // it stands for its minimum
	detached bool // its process has left it
}

// newSnapshot has the leases and waiters that the search finds. It keeps only the rows that it shows.
func newSnapshot(all iter.Seq[shown], search string, now time.Time) snapshot {
	wanted := strings.ToLower(search)
	leases, waiters := newTop(byUrgency), newTop(byUrgency)
	for s := range all {
		rows := leases
		if s.Waiting {
			rows = waiters
		}
		if stateContains(s, wanted) {
			rows.add(s)
		}
	}
	s := snapshot{
		Now: now, Search: search, Leases: []leaseRow{}, LeasesTotal: leases.total, Waiters: []waiterRow{},
		WaitersTotal: waiters.total, Losses: []lossRow{}, Stats: map[string]any{},
	}
	for _, lease := range leases.sorted() {
		s.Leases = append(s.Leases, newLeaseRow(lease, now))
	}
	for _, waiter := range waiters.sorted() {
		s.Waiters = append(s.Waiters, newWaiterRow(waiter, now))
	}
	return s
}

// stateContains reports whether a search finds the row of a lease or a waiter.
func stateContains(s shown, wanted string) bool {
	if containsAny(wanted, s.Name, s.Mode.String(), s.Owner, s.Hold, s.Meta) {
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

// byUrgency orders what an operator looks for first: what is lost or late, and then what has lasted longest.
func byUrgency(a, b shown) int {
	rank := func(s shown) int {
		switch {
		case s.Err != nil && !s.RenewalLate:
			return 0
		case s.RenewalLate, s.Unreachable, s.broken:
			return 1
		default:
			return 2
		}
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Hold, b.Hold))
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

func newLeaseRow(s shown, now time.Time) leaseRow {
	row := leaseRow{
		Name: s.Name, Mode: s.Mode.String(), Token: s.Token, Owner: s.Owner, Hold: s.Hold, Meta: s.Meta, Since: s.Since,
		HeldMS: millis(now.Sub(s.Since)), Lost: s.Err != nil && !s.RenewalLate, RenewalLate: s.RenewalLate,
		Count: s.Count, Shared: s.Shared, Lingering: s.Lingering, Broken: s.broken, Ended: s.ended, Detached: s.detached,
	}
	if !s.Deadline.IsZero() {
		row.LeftMS = millis(s.Deadline.Sub(now))
	}
	if s.Err != nil {
		row.Error = s.Err.Error()
	}
	if s.unknown {
		row.Mode, row.Lost, row.Unknown = "unknown", false, true
	}
	return row
}

func newWaiterRow(s shown, now time.Time) waiterRow {
	row := waiterRow{
		Name: s.Name, Mode: s.Mode.String(), Owner: s.Owner, Hold: s.Hold, Meta: s.Meta, Since: s.Since,
		WaitedMS: millis(now.Sub(s.Since)), Shared: s.Shared, Converting: s.Converting, Unreachable: s.Unreachable,
	}
	if b := s.Behind; b != nil {
		row.Behind = &behindRow{Owner: b.Owner, Hold: b.Hold, Meta: b.Meta, Mode: b.Mode.String()}
	}
	return row
}

func millis(d time.Duration) int64 { return max(0, d.Milliseconds()) }

// What follows formats values for the page.

// statLabel returns the name of a counter in words.
func statLabel(name string) string { return strings.ReplaceAll(name, "_", " ") }

// printable returns a text with the characters escaped that are not seen, or that would turn the text around them.
func printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
		} else {
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
	}
	return b.String()
}

// shownMoment returns a time for a tooltip and for scripts.
func shownMoment(t time.Time) string { return t.Format(time.RFC3339Nano) }

// shownDuration returns a number of milliseconds with two units at most.
func shownDuration(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return d.String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 24*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	default:
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
	}
}
