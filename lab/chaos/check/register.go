package check

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

// Register decides whether the guarded registers are linearizable: each access that was accepted, from its read to its
// write, must be one atomic step. Locks alone do not promise it, because a holder may stand still between the two.
func Register(h *history.History) (found []Violation, judged int) {
	all := map[string][]history.Access{}
	for _, a := range h.Accesses {
		if a.Guard == history.Fenced && !a.Refused {
			all[a.Name] = append(all[a.Name], a)
			judged++
		}
	}
	for name, accesses := range all {
		for _, c := range chapters(accesses) {
			if c.linearizable() {
				continue
			}
			found = append(found, Violation{
				Rule:     "register",
				Text:     fmt.Sprintf("%s: the accesses of the guarded register are not linearizable", name),
				Accesses: c.shortest(),
			})
		}
	}
	return found, judged
}

// LostUpdates returns how many writes to the registers with that guard were based on a value that another write had
// replaced.
func LostUpdates(h *history.History, guard string) (lost int) {
	type version struct {
		name string
		read uint64
	}
	seen := map[version]bool{}
	for _, a := range h.Accesses {
		if a.Guard != guard || a.Refused || a.Wrote == 0 {
			continue
		}
		v := version{a.Name, a.Read}
		if seen[v] {
			lost++
		}
		seen[v] = true
	}
	return lost
}

// chapter is a part of a register's history. It begins with the value that the last chapter left.
type chapter struct {
	value    uint64
	accesses []history.Access
}

// enough is the number of accesses after which a chapter ends as soon as it can. The time to judge a chapter grows with
// the square of their number.
const enough = 200

// chapters cuts a history after accesses that no other one overlaps: the value after such an access is known.
func chapters(accesses []history.Access) (all []chapter) {
	slices.SortFunc(accesses, func(a, b history.Access) int { return cmp.Compare(a.Called, b.Called) })
	value, begin, ended := uint64(0), 0, int64(-1)
	for i, a := range accesses {
		alone := a.Called > ended && (i+1 == len(accesses) || a.Ended < accesses[i+1].Called)
		ended = max(ended, a.Ended)
		if !alone || i+1-begin < enough {
			continue
		}
		all = append(all, chapter{value, accesses[begin : i+1]})
		value, begin = after(a, a.Read), i+1
	}
	return append(all, chapter{value, accesses[begin:]})
}

func after(a history.Access, value uint64) uint64 {
	if a.Wrote != 0 {
		return a.Wrote
	}
	return value
}

// linearizable reports whether the accesses can be put in an order, within their times, in which each reads what the
// last write before it wrote. What cannot be decided in time counts as a violation.
func (c chapter) linearizable() bool {
	model := porcupine.Model{
		Init: func() any { return c.value },
		Step: func(state, input, _ any) (bool, any) {
			value, a := state.(uint64), input.(history.Access)
			return a.Read == value, after(a, value)
		},
	}
	operations := make([]porcupine.Operation, len(c.accesses))
	for i, a := range c.accesses {
		operations[i] = porcupine.Operation{ClientId: i, Input: a, Call: a.Called, Return: a.Ended}
	}
	return porcupine.CheckOperationsTimeout(model, operations, time.Minute) == porcupine.Ok
}

// shortest returns the access that breaks the chapter first, and those shortly before it.
func (c chapter) shortest() []history.Access {
	const evidence = 6
	inOrder := slices.SortedFunc(slices.Values(c.accesses), func(a, b history.Access) int {
		return cmp.Compare(a.Ended, b.Ended)
	})
	lengths := make([]int, len(inOrder))
	for i := range lengths {
		lengths[i] = i + 1
	}
	n, _ := slices.BinarySearchFunc(lengths, true, func(length int, _ bool) int {
		if (chapter{c.value, inOrder[:length]}).linearizable() {
			return -1
		}
		return 1
	})
	n = min(n+1, len(inOrder))
	return inOrder[max(0, n-evidence):n]
}
