package fencing

// Registers is the state that a guarded storage keeps for a resource: the greatest token that has read it and the
// greatest that has written it. The zero value has seen nothing. Its methods are the rule of this package as pure
// functions, for storages that keep registers elsewhere than in a [Watermark].
type Registers struct {
	MaxRead, MaxWrite Token
}

// Check returns nil if an access under f is accepted: a read while its token is not older than the newest write, a
// write while it is not older than the newest read either. Otherwise it returns a [*StaleError]; for an invalid f, it
// returns the error of [Fence.Validate].
func (r Registers) Check(f Fence) error {
	limit := r.MaxWrite
	if f.Mode == Write {
		limit = max(limit, r.MaxRead)
	}
	return atLeast(f, limit)
}

// CheckDerived is [Registers.Check] for storing a value that was derived from a read: it requires only that nothing
// newer has been written, independent of f's mode.
func (r Registers) CheckDerived(f Fence) error { return atLeast(f, r.MaxWrite) }

// Raise returns the registers after an access under f that Check accepted.
func (r Registers) Raise(f Fence) Registers {
	switch f.Mode {
	case Read:
		r.MaxRead = max(r.MaxRead, f.Token)
	case Write:
		r.MaxWrite = max(r.MaxWrite, f.Token)
	}
	return r
}

func atLeast(f Fence, limit Token) error {
	if err := f.Validate(); err != nil {
		return err
	}
	if f.Token < limit {
		return &StaleError{Resource: f.Resource, Got: f.Token, Seen: limit}
	}
	return nil
}
