package localqueue

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
