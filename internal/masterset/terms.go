package masterset

import (
	"strconv"
	"strings"
)

// term identifies the process in a seat of a set, as a marker records it: the number of the process in the seat, and
// its run id. The next term begins whenever the server restarts or another server takes its place.
type term struct {
	number uint64 // 0: no process is known
	run    string // empty if no client may read it
}

// terms are the last known terms, by seat.
type terms []term

// readTerms parses the field of a marker. It returns nil if the field does not have the form that marker.lua writes.
func readTerms(text string) terms {
	var all terms
	for _, part := range strings.Fields(text) {
		number, run, _ := strings.Cut(part, ":")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return nil
		}
		all = append(all, term{n, run})
	}
	return all
}

// text formats the terms as marker.lua reads them.
func (t terms) text() string {
	parts := make([]string, 0, len(t))
	for _, one := range t {
		parts = append(parts, strconv.FormatUint(one.number, 10)+":"+one.run)
	}
	return strings.Join(parts, " ")
}

// of returns the term of a seat.
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
