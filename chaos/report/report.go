// Package report draws a history: the holders of each lock over time, the faults, the losses and what a guard refused.
package report

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/chaos/check"
	"github.com/seed74116694/fencelock/chaos/history"
)

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Parse(page))

// Write writes the report as one HTML page, with a timeline of the whole run and one around each violation.
func Write(w io.Writer, h *history.History, j check.Judgement) error {
	r := summary{
		Run: h.Run, Lasted: time.Duration(h.Run.Ended - h.Run.Began).Round(time.Millisecond), Spans: len(h.Spans),
		Failures: len(h.Failures), LostGuarded: check.LostUpdates(h, true), LostBare: check.LostUpdates(h, false),
		Whole: newTimeline(h, h.Run.Began, h.Run.Ended, ""),
	}
	for _, rule := range slices.Sorted(maps.Keys(j.Judged)) {
		r.Judged = append(r.Judged, count{rule, j.Judged[rule]})
	}
	kinds := map[string]int{}
	for _, f := range h.Faults {
		kinds[f.Kind]++
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		r.Faults = append(r.Faults, count{kind, kinds[kind]})
	}
	for _, a := range h.Accesses {
		if a.Refused {
			r.Refused++
		}
	}
	for i, v := range j.Violations {
		if i == most {
			break
		}
		shown := violation{Violation: v}
		if name, from, until, ok := around(v); ok {
			t := newTimeline(h, from, until, name)
			shown.Around = &t
		}
		r.Violations = append(r.Violations, shown)
	}
	r.Broken = len(j.Violations)
	return pageTemplate.Execute(w, r)
}

// most is the number of violations that are drawn.
const most = 50

type summary struct {
	history.Run
	Lasted                                                  time.Duration
	Spans, Failures, Refused, LostGuarded, LostBare, Broken int
	Judged, Faults                                          []count
	Violations                                              []violation
	Whole                                                   timeline
}

type count struct {
	Name string
	N    int
}

type violation struct {
	check.Violation
	Around *timeline
}

// around returns the shortest time that shows a violation: from shortly before its evidence to shortly after it.
func around(v check.Violation) (name string, from, until int64, ok bool) {
	for _, s := range v.Spans {
		name, from, until = s.Name, least(from, s.Called), max(until, s.Granted, s.Last, s.Ended)
	}
	for _, a := range v.Accesses {
		name, from, until = a.Name, least(from, a.Called), max(until, a.Ended)
	}
	margin := (until-from)/10 + int64(time.Millisecond)
	return name, from - margin, until + margin, until > 0
}

// least is the smaller one of two times, where 0 is none.
func least(a, b int64) int64 {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// The sizes of a timeline, in the units of its SVG.
const (
	width  = 1000.0
	margin = 130.0 // for the names of the rows
	height = 16    // of a row
)

// timeline is a drawing of a part of a history: one row for each process and lock, and one for each kind of fault.
type timeline struct {
	Rows   []row
	Height int
	From   int64
	Length time.Duration
}

type row struct {
	Name  string
	Y     int
	Marks []mark
}

// mark is a rectangle of a row. Class is one of write, read, wait, lost, refused and fault.
type mark struct {
	Class    string
	X, Width float64
	Text     string
}

// newTimeline draws the time between from and until, of one lock or, without a name, of all.
func newTimeline(h *history.History, from, until int64, name string) timeline {
	t := timeline{From: from, Length: time.Duration(until - from)}
	rows := map[string]*row{}
	add := func(of, class string, begin, end int64, text string) {
		if end < from || begin > until || until <= from {
			return
		}
		if rows[of] == nil {
			rows[of] = &row{Name: of}
		}
		scale := (width - margin) / float64(until-from)
		x := float64(max(begin, from)-from) * scale
		wide := max(float64(min(end, until)-from)*scale-x, 0.7)
		if marks := rows[of].Marks; name == "" && len(marks) > 0 {
			if last := &marks[len(marks)-1]; last.Class == class && x < last.X+last.Width+0.3 { // too close to be seen apart
				last.Width = max(last.Width, x+wide-last.X)
				return
			}
		}
		rows[of].Marks = append(rows[of].Marks, mark{class, margin + x, wide, text})
	}
	addFaults(h, add)
	addSpans(h, name, add)
	for _, a := range h.Accesses {
		if a.Refused && (name == "" || name == a.Name) {
			add("3 refused "+a.Name, "refused", a.Ended, a.Ended, fmt.Sprintf("token %d of process %d", a.Token, a.Process))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		r := rows[key]
		r.Name, r.Y = r.Name[2:], t.Height
		t.Height += height
		t.Rows = append(t.Rows, *r)
	}
	return t
}

// adder adds a mark to a row. The first character of the row's name is its place.
type adder = func(row, class string, begin, end int64, text string)

func addFaults(h *history.History, add adder) {
	for _, f := range h.Faults {
		kind := "1 "
		if f.Kind == history.Still {
			kind = "2 "
		}
		add(kind+f.Kind, "fault", f.From, f.Until, fmt.Sprintf("%s: %s, %v", f.Kind, f.Target, time.Duration(f.Until-f.From)))
	}
}

// addSpans adds the holders: of all locks one row for each lock, of one lock a row for each process.
func addSpans(h *history.History, name string, add adder) {
	spans := slices.SortedStableFunc(slices.Values(h.Spans), func(a, b history.Span) int {
		return cmp.Compare(a.Granted, b.Granted)
	})
	for _, s := range spans {
		if name != "" && name != s.Name {
			continue
		}
		at, class := "4 "+s.Name, "read"
		if name != "" {
			at = fmt.Sprintf("4 %03d.%d", s.Process, s.Worker)
		}
		if s.Write {
			class = "write"
		}
		text := fmt.Sprintf("%s by process %d, worker %d (%s), token %d, %s", s.Name, s.Process, s.Worker, s.Form, s.Token,
			s.End)
		if name != "" {
			add(at, "wait", s.Called, s.Granted, "waits: "+text)
		}
		add(at, class, s.Granted, max(s.Last, s.Granted), text)
		if s.Lost > 0 {
			add("3 lost "+s.Name, "lost", s.Lost, s.Lost, text+": "+s.Reason)
		}
	}
}
