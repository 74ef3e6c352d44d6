package rwlock

// Why a value cannot be used that was not made by this package.
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

// unusable returns why.
func (l *Lease) unusable() error {
	if l == nil {
		return errNilLease
	}
	return errZeroLease
}

// isUnusable reports whether the RWMutex has no Locker: it was not made by one, or that has refused it.
func (m *RWMutex) isUnusable() bool { return m.locker == nil }

// unusable returns why.
func (m *RWMutex) unusable() error {
	if m.refused != nil {
		return m.refused
	}
	return errZeroMutex
}
