package scriptfuzz

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Standing is a hold that a server has granted.
type Standing struct {
	ID     string
	Write  bool
	Token  int64 // 0 once it is broken or ended, and so is not renewed any more
	Block  int64 // of how many tokens Token is the last; 0 for one
	Expiry int64 // ms of the server's clock
}

// Change is what a script call has changed about the holds of a lock.
type Change struct {
	Key           string // of the lock
	Micros        int64  // the server's time of the call
	Before, After []Standing
	Crowd         bool // the lock has too many records to be shown
}

// Watch has f see the holds of a lock just before and just after each script call.
func (t *Trace) Watch(f func(Change)) { t.watch = f }

// standing returns the granted holds by id, those that have expired and were not removed included.
func (d dump) standing() (all []Standing) {
	add := func(id string, r record) {
		part := strings.SplitN(r.details, " ", 4)
		s := Standing{ID: id, Write: part[0] == "w", Token: r.token, Expiry: r.expiry}
		if len(part) > 2 && strings.HasPrefix(part[2], "+") {
			block, _, _ := strings.Cut(strings.TrimSuffix(part[2][1:], "~"), "^")
			s.Block = number(block)
		}
		all = append(all, s)
	}
	if id, r, ok := d.writeHold(); ok {
		add(id, r)
	}
	for _, id := range slices.Sorted(maps.Keys(d.records)) {
		r := d.records[id]
		if r.state != granted {
			continue
		}
		if score, indexed := d.scores[inHolds][id]; indexed {
			r.expiry = score
		}
		add(id, r)
	}
	slices.SortFunc(all, func(a, b Standing) int { return cmp.Compare(a.ID, b.ID) })
	return all
}
