package engine

// ending tells whoever asked for it that a lease has ended. It is guarded by the lease's mutex. Thousands of leases are
// held at once, and few of them are asked, so all that it needs is made with the first question or with the end.
type ending struct{ of *end }

// end is that of one lease.
type end struct {
	err   error         // nil before it; then ErrReleased, *Failure or *Loss
	done  chan struct{} // closed at the end; made when asked for
	calls map[*func(error)]struct{}
}

// released is the end of every lease that nobody has asked about and that its holder has released. It never changes.
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

// made returns the end, which is there from now on.
func (n *ending) made() *end {
	if n.of == nil {
		n.of = new(end)
	}
	return n.of
}

// channel returns what is closed at the end.
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

// add has f called at the end, which has not come. The pointer is its name: two equal functions cannot be told apart
// otherwise.
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

// come is the end. What was asked for is called when mu is given back.
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
