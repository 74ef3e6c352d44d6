package engine

// ending notifies the subscribers to a lease's end. The lease's mutex guards it. Thousands of leases are held at once
// and few have subscribers, so its state is allocated with the first subscription or with the end.
type ending struct{ of *end }

// end is the state of an ending.
type end struct {
	err   error         // nil before it; then ErrReleased, *Failure or *Loss
	done  chan struct{} // closed at the end; made on request
	calls map[*func(error)]struct{}
}

// released is the end of every lease without subscribers that its holder has released. It never changes.
var released = func() *end {
	e := &end{err: ErrReleased, done: make(chan struct{})}
	close(e.done)
	return e
}()

// err returns nil before the end.
func (n *ending) err() error {
	if n.of == nil {
		return nil
	}
	return n.of.err
}

// made returns the state, allocated if there was none.
func (n *ending) made() *end {
	if n.of == nil {
		n.of = new(end)
	}
	return n.of
}

// channel returns a channel that is closed at the end. Every call returns the same channel.
func (n *ending) channel() <-chan struct{} {
	e := n.made()
	if e.done == nil {
		e.done = make(chan struct{})
		if e.err != nil {
			close(e.done)
		}
	}
	return e.done
}

// add registers f to be called at the end, which has not come. The pointer identifies f, since two functions cannot be
// compared.
func (n *ending) add(f *func(error)) {
	e := n.made()
	if e.calls == nil {
		e.calls = make(map[*func(error)]struct{})
	}
	e.calls[f] = struct{}{}
}

func (n *ending) remove(f *func(error)) {
	if n.of != nil {
		delete(n.of.calls, f)
	}
}

// come ends the lease. The registered calls run when mu is unlocked.
func (n *ending) come(err error, mu *guard) {
	if n.of == nil && err == ErrReleased {
		n.of = released
		return
	}
	e := n.made()
	e.err = err
	if e.done != nil {
		close(e.done)
	}
	for f := range e.calls {
		mu.afterUnlock(func() { (*f)(err) })
	}
	e.calls = nil
}
