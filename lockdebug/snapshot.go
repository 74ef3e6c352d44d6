package lockdebug

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// snapshot is what an answer shows.
type snapshot struct {
	request
	Process      string         `json:"process,omitempty"` // host:pid
	Redis        string         `json:"redis,omitempty"`   // instead, of ListHandler
	Errors       []string       `json:"errors,omitempty"`  // of servers
	Unknown      bool           `json:"unknown,omitempty"` // held locks may be missing
	Now          time.Time      `json:"now"`
	Locks        []lockView     `json:"locks"`       // of Leases and Waiters, in the order of the page
	LocksTotal   int            `json:"locks_total"` // that were found, of which Locks may be a part
	Leases       []leaseRow     `json:"leases"`
	LeasesTotal  int            `json:"leases_total"`
	Waiters      []waiterRow    `json:"waiters"`
	WaitersTotal int            `json:"waiters_total"`
	Losses       []lossRow      `json:"losses"` // the newest first
	Stats        map[string]any `json:"stats"`
	StatRows     []statRow      `json:"-"`
	Breaks       bool           `json:"-"` // the page has links to break holds
	AllLocks     int            `json:"-"` // LocksTotal, and those without waiters if they are left out
}

// lockView is a lock with its rows.
type lockView struct {
	Name     string      `json:"name"`
	Holders  int         `json:"holders"` // of the lock, as Waiting; a search may find fewer
	Waiting  int         `json:"waiting"`
	HeldMS   int64       `json:"held_ms"`           // the longest
	WaitedMS int64       `json:"waited_ms"`         // the longest
	Unknown  bool        `json:"unknown,omitempty"` // the lock may be held
	Leases   []leaseRow  `json:"-"`
	Waiters  []waiterRow `json:"-"`
}

// Summary counts the holders and the waiters: "1 holder, 4 waiting".
func (v lockView) Summary() string {
	var parts []string
	switch {
	case v.Holders == 1:
		parts = append(parts, "1 holder")
	case v.Holders > 1:
		parts = append(parts, fmt.Sprintf("%d holders", v.Holders))
	case v.Unknown:
		parts = append(parts, "may be held")
	}
	if v.Waiting > 0 {
		parts = append(parts, fmt.Sprintf("%d waiting", v.Waiting))
	}
	return strings.Join(parts, ", ")
}

// Hidden returns how many rows of the lock the answer does not have.
func (v lockView) Hidden() int {
	if v.Unknown {
		return 0
	}
	return max(0, v.Holders+v.Waiting-len(v.Leases)-len(v.Waiters))
}

// Folds reports whether the page shows the first rows of the lock only, until the reader opens the rest.
func (v lockView) Folds() bool { return len(v.Leases) > foldedRows || len(v.Waiters) > foldedRows }

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
	Unknown     bool          `json:"unknown,omitempty"` // the lock may be held
	Ended       bool          `json:"ended,omitempty"`   // released, and kept by WithMinHold
	Broken      bool          `json:"broken"`            // it cannot be renewed, and its process has not heard of it
	BrokenBy    string        `json:"broken_by,omitempty"`
	BrokenWhy   string        `json:"broken_why,omitempty"`
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
	BehindShown bool       `json:"-"` // Behind has a row of its own in the lock
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

// maxRows bounds how many leases and how many waiters an answer shows, and foldedRows how many of each the page shows
// of one lock at first.
const maxRows, foldedRows = 500, 5

// snapshot returns the answer: the rows, and the locks that have them.
func (g *gathering) snapshot(now time.Time) snapshot {
	s := snapshot{
		request: g.request, Now: now, Locks: []lockView{}, LocksTotal: g.locks, AllLocks: g.all,
		Leases: []leaseRow{}, LeasesTotal: g.leases.total, Waiters: []waiterRow{}, WaitersTotal: g.waiters.total,
		Losses: []lossRow{}, Stats: map[string]any{},
	}
	views := map[*group]*lockView{}
	view := func(of *group) *lockView {
		if views[of] == nil {
			views[of] = newLockView(of, now)
		}
		return views[of]
	}
	for _, lease := range g.leases.sorted() {
		row, v := newLeaseRow(lease, now), view(lease.of)
		s.Leases, v.Leases = append(s.Leases, row), append(v.Leases, row)
	}
	for _, waiter := range g.waiters.sorted() {
		row, v := newWaiterRow(waiter, now), view(waiter.of)
		s.Waiters = append(s.Waiters, row)
		if row.Behind != nil {
			row.BehindShown = slices.ContainsFunc(v.Leases, func(l leaseRow) bool { return l.Hold == row.Behind.Hold })
		}
		v.Waiters = append(v.Waiters, row)
	}
	found := make([]*group, 0, len(views))
	for of := range views {
		found = append(found, of)
	}
	slices.SortFunc(found, g.order)
	for _, of := range found {
		s.Locks = append(s.Locks, *views[of])
	}
	return s
}

func newLockView(g *group, now time.Time) *lockView {
	v := &lockView{Name: g.name, Holders: g.holders, Waiting: g.waiting, Unknown: g.unknown}
	if !g.held.IsZero() {
		v.HeldMS = millis(now.Sub(g.held))
	}
	if !g.waited.IsZero() {
		v.WaitedMS = millis(now.Sub(g.waited))
	}
	return v
}

func newLeaseRow(s shown, now time.Time) leaseRow {
	row := leaseRow{
		Name: s.Name, Mode: s.Mode.String(), Token: s.Token, Owner: s.Owner, Hold: s.Hold, Meta: s.Meta, Since: s.Since,
		HeldMS: millis(now.Sub(s.Since)), Lost: s.Err != nil && !s.RenewalLate, RenewalLate: s.RenewalLate,
		Count: s.Count, Shared: s.Shared, Lingering: s.Lingering, Broken: s.broken, BrokenBy: s.brokenBy,
		BrokenWhy: s.brokenWhy, Ended: s.ended, Detached: s.detached,
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
