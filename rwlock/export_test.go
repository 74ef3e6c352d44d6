package rwlock

// ReaderCount is the count of the readers who are in an RWMutex together.
type ReaderCount struct{ readers }

// ReaderChanges are the ways in which the count changes.
var ReaderChanges = map[string]func(*ReaderCount) bool{
	"join":   func(c *ReaderCount) bool { return c.join() },
	"leave":  func(c *ReaderCount) bool { return c.leave() },
	"enter":  func(c *ReaderCount) bool { c.enter(); return true },
	"depart": func(c *ReaderCount) bool { held, _ := c.depart(); return held },
	"open":   func(c *ReaderCount) bool { c.open(true); return c.State() >= reader },
	"close":  func(c *ReaderCount) bool { c.open(false); return true },
}

// transitions are those that the changes of ReaderChanges make.
var transitions = map[string]transition{
	"join": afterJoin, "leave": afterLeave, "enter": afterEnter, "depart": afterDepart, "open": afterOpen,
	"close": afterClose,
}

// NewReaderCount returns the count of n readers.
func NewReaderCount(n int, open bool) *ReaderCount {
	c := &ReaderCount{}
	for range n {
		c.enter()
	}
	c.open(open)
	return c
}

// State tells two counts apart.
func (c *ReaderCount) State() int64 { return c.state.Load() }

// Interrupted makes the change of that name, and calls interrupt between the first look at the count and the step.
func (c *ReaderCount) Interrupted(name string, interrupt func()) (changed bool) {
	looked := false
	_, changed = c.change(func(state int64) (int64, bool) {
		if !looked {
			looked = true
			interrupt()
		}
		return transitions[name](state)
	})
	return changed
}

// Ends returns how many ends the RWMutex keeps for the contexts of those who are in.
func Ends(m *RWMutex) int { return m.in.Load().kept() }

// LeaseEnds returns how many ends a lease keeps for its contexts.
func LeaseEnds(l *Lease) int { return l.ownContexts().kept() }

func (c *contexts) kept() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ends)
}

// IsBusy reports whether somebody has the mutex of an RWMutex.
func IsBusy(m *RWMutex) bool {
	free := m.mu.TryLock()
	if free {
		m.mu.Unlock()
	}
	return !free
}

// ServesAfter calls end, which ends the lease of an RWMutex, and reports whether that serves one more before the
// RWMutex has heard of its end: that takes its mutex.
func ServesAfter(m *RWMutex, end func()) bool {
	m.mu.Lock()
	defer m.unlock()
	h := m.remote.Load()
	go end()
	<-h.lease.Done()
	now := m.locker.engine.Now()
	return h.serves(Write, now) || h.serves(Read, now)
}

// LingerTimer reports whether a timer for the end of lingering runs.
func LingerTimer(m *RWMutex) bool {
	m.mu.Lock()
	defer m.unlock()
	return m.linger.timer != nil && m.linger.timer.Stop()
}
