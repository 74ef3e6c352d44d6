package engine

// ending tells whoever asked for it that a lease has ended. It is guarded by the lease's mutex.
type ending struct {
	err   error         // nil before the end; then ErrReleased, *Failure or *Loss
	done  chan struct{} // closed at the end; made when asked for
	calls map[*func(error)]struct{}
}

// channel returns what is closed at the end.
func (n *ending) channel() <-chan struct{} {
	if n.done == nil {
		n.done = make(chan struct{})
		if n.err != nil {
			close(n.done)
		}
	}
	return n.done
}

// add has f called at the end. The pointer is its name: two equal functions cannot be told apart otherwise.
func (n *ending) add(f *func(error)) {
	if n.calls == nil {
		n.calls = make(map[*func(error)]struct{})
	}
	n.calls[f] = struct{}{}
}

func (n *ending) remove(f *func(error)) { delete(n.calls, f) }

// come is the end. What was asked for is called when mu is given back.
func (n *ending) come(err error, mu *guard) {
	n.err = err
	if n.done != nil {
		close(n.done)
	}
	for f := range n.calls {
		mu.afterUnlock(func() { (*f)(err) })
	}
	n.calls = nil
}
