package masterset

// term identifies the process in a seat of a set, as a marker records it: the number of the process in the seat, and
// its run id. The next term begins whenever the server restarts or another server takes its place.
type term struct {
	number uint64 // 0: no process is known
	run    string // empty if no client may read it
}

// terms are the last known terms, by seat.
type terms []term

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
