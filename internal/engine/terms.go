package engine

import (
	"strconv"
	"strings"
)

// term is who is in a seat of a set, as a marker tells it: the number of the process there, and its run id. Each time
// that a server restarts, or another one takes its place, the next term begins.
type term struct {
	number uint64 // 0: nobody is known
	run    string // empty where no client may read it
}

// terms are the last ones that are known, by seat.
type terms []term

// readTerms reads the field of a marker. What is not as marker.lua writes it is not known.
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

// text is what marker.lua reads.
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

// learn takes over the terms that are later.
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
// same term where some clients reached the one and some the other; then neither is taken to be the one.
func (t term) replacedBy(last term) bool {
	return last.number > t.number || last.number == t.number && last.run != t.run && last.run != "" && t.run != ""
}
