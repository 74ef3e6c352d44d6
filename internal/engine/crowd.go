package engine

import (
	"cmp"
	"slices"
)

// crowd holds the waiters of a set in order of arrival. The nearest have leases of their own, which every refresh
// renews. The far waiters behind them keep their places in the master's queue, but live by a lease of their process,
// which the refresh of the nearest renews too: state f of lock.lua. So the cost of a crowd per second does not grow
// with its size: to name 100,000 waiters would take three quarters of a server's time. If that lease has lapsed, the
// waiters are reported again, and ask again if their places are gone. The mutex of the wait sets guards it.
type crowd struct {
	places     map[*acquisition]place // of every waiter
	nearest    []*acquisition         // may name waiters that have left
	near       int                    // how many of the nearest wait
	left       int                    // how many of the nearest have left since their last refresh
	far        []*acquisition         // behind the nearest, in their order; may name waiters that have left
	unreported []*acquisition         // far waiters to report to the master; may name waiters that have left

	noneReported bool // every far waiter is in unreported
}

// place is the position of a waiter in a crowd.
type place uint8

const (
	isNear       place = 1 << iota // among the nearest
	isUnreported                   // named by unreported
)

// nearestMost is how many waiters of a process one refresh of a lock names. A server does nothing else while a script
// runs, so this bounds the delay that a crowd causes to other locks.
const nearestMost = 200

func newCrowd() crowd { return crowd{places: make(map[*acquisition]place)} }

// add adds a waiter, or has one reported to the master again if it is already in. An upgrade waits at the head of the
// master's queue, so it is always among the nearest.
func (c *crowd) add(a *acquisition) {
	at, in := c.places[a]
	switch {
	case in && at&(isNear|isUnreported) == 0:
		c.report(a)
	case in:
	case a.entry == Upgrade || len(c.far) == 0 && c.near < nearestMost:
		c.bringNear(a)
	default:
		c.places[a] = 0
		c.far = append(c.far, a)
		c.report(a)
	}
}

func (c *crowd) bringNear(a *acquisition) {
	c.places[a] = isNear
	c.near++
	c.nearest = append(c.nearest, a)
}

// report has a far waiter reported to the master.
func (c *crowd) report(a *acquisition) {
	c.places[a] |= isUnreported
	c.unreported = append(c.unreported, a)
}

// reportAll has all far waiters reported to the master. While no report goes out, as when a server refuses one refresh
// after the other, only the first call looks at all of them.
func (c *crowd) reportAll() {
	if c.noneReported {
		return
	}
	c.noneReported = true
	for _, a := range c.far {
		if at, in := c.places[a]; in && at&isUnreported == 0 {
			c.report(a)
		}
	}
}

// remove removes a waiter. The slices name it until they are next read, or until too many of their entries have left.
func (c *crowd) remove(a *acquisition) {
	if c.isNear(a) {
		c.near--
		c.left++
	}
	delete(c.places, a)
	for _, s := range []*[]*acquisition{&c.nearest, &c.far, &c.unreported} {
		if len(*s) > 2*len(c.places)+nearestMost {
			*s = slices.Clip(slices.DeleteFunc(*s, c.hasLeft))
		}
	}
}

func (c *crowd) hasLeft(a *acquisition) bool {
	_, in := c.places[a]
	return !in
}

func (c *crowd) isNear(a *acquisition) bool { return c.places[a]&isNear != 0 }

// hasFar reports whether waiters live by the lease of their process.
func (c *crowd) hasFar() bool { return len(c.places) > c.near }

// drained reports whether so many of the nearest have left that far waiters should take their places.
func (c *crowd) drained() bool { return c.left >= nearestMost/2 && c.hasFar() }

// hasNews reports whether there is something to send in a call in addition to the regular ones.
func (c *crowd) hasNews() bool { return len(c.places) > 0 && (c.drained() || len(c.unreported) > 0) }

// takeNearest returns the nearest, longest wait first: on masters that order by arrival, a queue that is rebuilt then
// has the order of the old one.
func (c *crowd) takeNearest() []*acquisition {
	c.advance()
	slices.SortStableFunc(c.nearest, func(a, b *acquisition) int {
		return cmp.Compare(a.hold.begun, b.hold.begun)
	})
	return slices.Clone(c.nearest)
}

// advance moves far waiters into the places of the nearest that have left, and returns the waiters it moved.
func (c *crowd) advance() []*acquisition {
	c.left = 0
	c.nearest = slices.DeleteFunc(c.nearest, c.hasLeft)
	before := len(c.nearest)
	for c.near < nearestMost && len(c.far) > 0 {
		if a := takeFirst(&c.far); !c.hasLeft(a) {
			c.bringNear(a)
		}
	}
	return slices.Clone(c.nearest[before:])
}

// takeUnreported returns the far waiters to report to the master next.
func (c *crowd) takeUnreported() (unreported []*acquisition) {
	for len(c.unreported) > 0 && len(unreported) < nearestMost {
		a := takeFirst(&c.unreported)
		if at := c.places[a]; at&isUnreported != 0 && at&isNear == 0 {
			c.places[a] = at &^ isUnreported
			unreported = append(unreported, a)
			c.noneReported = false
		}
	}
	return unreported
}

func takeFirst(s *[]*acquisition) *acquisition {
	a := (*s)[0]
	(*s)[0] = nil
	if *s = (*s)[1:]; len(*s) == 0 {
		*s = nil
	}
	return a
}
