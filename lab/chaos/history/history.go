// Package history is the record of a run: the locks that each worker believed to hold, and the times of the faults.
//
// Every time is a reading of the machine's monotonic clock in nanoseconds, which all processes of a run share.
package history

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Span is the time during which one worker believed that it held one lock in one mode. An upgrade or a downgrade ends
// a span and begins another.
type Span struct {
	Process int    `json:"process"` // one per process that was started, a restarted one has another
	Worker  int    `json:"worker"`
	Name    string `json:"name"`
	Form    string `json:"form"`  // the form of the API
	Write   bool   `json:"write"` // else it reads
	Owner   string `json:"owner"` // spans of one owner do not exclude each other
	Token   uint64 `json:"token"`
	Ticket  string `json:"ticket,omitempty"`   // the hold that it has adopted
	From    uint64 `json:"from,omitempty"`     // the token of that hold
	Joined  bool   `json:"joined,omitempty"`   // shares the token of a span around it
	Slot    int    `json:"slot,omitempty"`     // of the process, which one that replaces it takes over
	Queued  bool   `json:"queued,omitempty"`   // waited in the order of arrival, of an RWMutex in its process
	Bounded bool   `json:"bounded,omitempty"`  // its end was set when it was taken: it is lost without a fault
	MinHold int64  `json:"min_hold,omitempty"` // for how long after the grant the name stays taken
	Called  int64  `json:"called"`
	Granted int64  `json:"granted"`          // when the call had returned
	Last    int64  `json:"last,omitempty"`   // before the last look that found the lock held; 0: no look did
	Lost    int64  `json:"lost,omitempty"`   // when the context of the lock ended, if it was lost
	Over    int64  `json:"over,omitempty"`   // when its holder was about to release it, and knew that it was lost
	Ended   int64  `json:"ended,omitempty"`  // when the lock had been released or the loss was seen
	End     string `json:"end"`              // released, lost, unconfirmed, converted, detached
	Kept    bool   `json:"kept,omitempty"`   // the lock was still trusted when its conversion had ended
	Reason  string `json:"reason,omitempty"` // of the loss
	Err     string `json:"err,omitempty"`
}

// Failure is an acquisition that failed.
type Failure struct {
	Process int    `json:"process"`
	Slot    int    `json:"slot,omitempty"` // of the process
	Worker  int    `json:"worker"`
	Name    string `json:"name"`
	Form    string `json:"form"`
	Write   bool   `json:"write"`
	Called  int64  `json:"called"`
	Ended   int64  `json:"ended"`
	Limit   int64  `json:"limit"` // how long its context let it wait, in nanoseconds
	Cause   string `json:"cause"` // contended, no quorum, closed, or the error's text
	Err     string `json:"err,omitempty"`
}

// Conversion is the form of a failed Upgrade of an RWMutex. Its hold may have been granted, and have waited for readers
// of its process.
const Conversion = "conversion"

// Still is the kind of a fault that no nemesis made: a process stood still.
const Still = "still"

// Fault is one fault of the nemesis, or a process that stood still.
type Fault struct {
	Kind    string `json:"kind"`
	Target  string `json:"target"`
	From    int64  `json:"from"`
	Until   int64  `json:"until"`
	Process int    `json:"process,omitempty"` // the process that stood still
	// What it struck: the slots of worker processes, and the masters of a quorum. Without either it struck all.
	Workers []int `json:"workers,omitempty"`
	Masters []int `json:"masters,omitempty"`

	Forgets  bool `json:"forgets,omitempty"`  // the masters that it struck may lose their data
	Excuses  bool `json:"excuses,omitempty"`  // exclusion is not promised across it
	Reorders bool `json:"reorders,omitempty"` // the order of tokens is not promised across it
}

// The guards of registers. Without one a register takes every write.
const (
	Fenced   = "fenced"   // refuses stale tokens
	Compared = "compared" // refuses a write if another hold has read since
)

// Access is one access of a worker to a register that is read and then written under a lock, as the register saw it.
type Access struct {
	Name    string `json:"name"`
	Guard   string `json:"guard,omitempty"`
	Process int    `json:"process"`
	Token   uint64 `json:"token"`
	Called  int64  `json:"called"` // when it was read
	Ended   int64  `json:"ended"`  // when it was written, or when the read ended
	Read    uint64 `json:"read"`
	Wrote   uint64 `json:"wrote,omitempty"` // 0: it was only read
	Refused bool   `json:"refused,omitempty"`
}

// Break is a hold that an operator breaks.
type Break struct {
	Process int      `json:"process"` // of the operator
	Name    string   `json:"name"`
	Hold    string   `json:"hold"`
	Token   uint64   `json:"token,omitempty"`  // of the hold; 0 for a waiter
	Tokens  []uint64 `json:"tokens,omitempty"` // that the masters have given it: the same, once it is granted
	Now     bool     `json:"now,omitempty"`    // the lock is freed at once
	Called  int64    `json:"called"`
}

// Hold is a hold while one master had it with one token. Only servers that show each script call have a record of them.
type Hold struct {
	Master int    `json:"master"`
	Name   string `json:"name"`
	ID     string `json:"id"`
	Write  bool   `json:"write,omitempty"`
	Token  uint64 `json:"token"`
	Block  uint64 `json:"block,omitempty"` // of how many tokens Token is the last; 0 for one
	From   int64  `json:"from"`            // the time of the call that granted it
	Until  int64  `json:"until"`           // after the call that removed it, or its expiry
	Lost   bool   `json:"lost,omitempty"`  // its master lost it before Until, which is its expiry
	Crowd  bool   `json:"crowd,omitempty"` // not a hold: the lock had too many records for its holds to be known
	Ends   bool   `json:"ends,omitempty"`  // it was broken, or released before its minimum
}

// Event is one line of a worker's record: one of its fields is set.
type Event struct {
	Span    *Span    `json:"span,omitempty"`
	Failure *Failure `json:"failure,omitempty"`
	Fault   *Fault   `json:"fault,omitempty"`
	Slow    *Fault   `json:"slow,omitempty"` // a process whose calls to a master took long
	Break   *Break   `json:"break,omitempty"`
	Answer  *Answer  `json:"answer,omitempty"`
}

// Run describes the run of a history.
type Run struct {
	Deployment string `json:"deployment"`
	Masters    int    `json:"masters"`
	Replicas   int    `json:"replicas,omitempty"` // without which no grant counts
	Server     string `json:"server"`
	Seed       uint64 `json:"seed"`
	Commit     string `json:"commit"`
	TTL        int64  `json:"ttl"` // the longest of any worker, in nanoseconds
	Began      int64  `json:"began"`
	Healed     int64  `json:"healed"` // when the last fault had ended
	Ended      int64  `json:"ended"`
}

// History is a whole run.
type History struct {
	Run      Run
	Spans    []Span
	Failures []Failure
	Faults   []Fault
	Slow     []Fault
	Accesses []Access
	Breaks   []Break
	Holds    []Hold
	Answers  []Answer
}

// Add takes in one event.
func (h *History) Add(e Event) {
	switch {
	case e.Span != nil:
		h.Spans = append(h.Spans, *e.Span)
	case e.Failure != nil:
		h.Failures = append(h.Failures, *e.Failure)
	case e.Fault != nil:
		h.Faults = append(h.Faults, *e.Fault)
	case e.Slow != nil:
		h.Slow = append(h.Slow, *e.Slow)
	case e.Break != nil:
		h.Breaks = append(h.Breaks, *e.Break)
	case e.Answer != nil:
		h.Answers = append(h.Answers, *e.Answer)
	}
}

// Sort puts the parts into the order of time.
func (h *History) Sort() {
	slices.SortFunc(h.Spans, func(a, b Span) int { return cmp.Compare(a.Granted, b.Granted) })
	slices.SortFunc(h.Failures, func(a, b Failure) int { return cmp.Compare(a.Called, b.Called) })
	slices.SortFunc(h.Faults, func(a, b Fault) int { return cmp.Compare(a.From, b.From) })
	slices.SortFunc(h.Holds, func(a, b Hold) int { return cmp.Compare(a.From, b.From) })
	slices.SortFunc(h.Accesses, func(a, b Access) int { return cmp.Compare(a.Called, b.Called) })
}

// Read adds the events of r, one JSON object a line. An incomplete last line, as a killed process leaves it, is
// ignored.
func (h *History) Read(r io.Reader) error {
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		h.Add(e)
	}
}

// Load reads a saved history.
func Load(path string) (*History, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	h := &History{}
	zip, err := gzip.NewReader(file)
	if err == nil {
		err = json.NewDecoder(zip).Decode(h)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// Save writes the history, compressed.
func (h *History) Save(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	zip := gzip.NewWriter(file)
	err = json.NewEncoder(zip).Encode(h)
	return errors.Join(err, zip.Close(), file.Close())
}
