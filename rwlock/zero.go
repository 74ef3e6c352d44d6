package rwlock

// The errors of values that this package did not make.
var (
	errZeroLocker = &OptionError{"Locker", "zero value", "must be made by New"}
	errZeroLease  = &OptionError{"Lease", "zero value", "must be made by a Locker"}
	errNilLease   = &OptionError{"Lease", "nil", "must be made by a Locker"}
	errZeroMutex  = &OptionError{"RWMutex", "zero value", "must be made by Locker.RWMutex"}
)

// isZero reports whether the locker was not made by New.
func (l *Locker) isZero() bool { return l.engine == nil }

// isUnusable reports whether the lease was not granted by a Locker.
func (l *Lease) isUnusable() bool { return l == nil || l.locker == nil }

// unusable returns the reason.
func (l *Lease) unusable() error {
	if l == nil {
		return errNilLease
	}
	return errZeroLease
}

// isUnusable reports whether the RWMutex has no Locker: no Locker made it, or the Locker refused its name or options.
func (m *RWMutex) isUnusable() bool { return m.locker == nil }

// unusable returns the reason.
func (m *RWMutex) unusable() error {
	if m.refused != nil {
		return m.refused
	}
	return errZeroMutex
}
