package rwlock

import (
	"fmt"
	"iter"
	"runtime"
	"sync"
	"time"
	"weak"

	"github.com/seed74116694/fencelock/internal/settings"
)

// mutexes is the registry of a locker's RWMutexes, so that all goroutines that ask for a name share one. It keeps an
// RWMutex alive while it is in use: held, or waited for. It knows the other ones only as long as the program refers to
// them.
type mutexes struct {
	closed chan struct{} // closed with the locker
	once   sync.Once

	mu    sync.Mutex                         // taken after an RWMutex's mu; guards the fields below
	known map[mutexKey]weak.Pointer[RWMutex] // all that the program refers to
	inUse map[string]*RWMutex                // by name; this keeps them alive, also while a lease lingers
}

// mutexKey identifies an RWMutex: two calls with equal options share one.
type mutexKey struct {
	name     string
	settings settings.Lock
}

func newMutexes() *mutexes {
	return &mutexes{
		closed: make(chan struct{}), known: make(map[mutexKey]weak.Pointer[RWMutex]), inUse: make(map[string]*RWMutex),
	}
}

// close ends the wait of all waiters of this process. The engine's Close ends the holds.
func (r *mutexes) close() { r.once.Do(func() { close(r.closed) }) }

// get returns the RWMutex with that name and these settings: the existing one, or the result of create.
func (r *mutexes) get(name string, s settings.Lock, create func() *RWMutex) *RWMutex {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := mutexKey{name, s}
	if m := r.known[key].Value(); m != nil {
		return m
	}
	m := create()
	known := weak.Make(m)
	r.known[key] = known
	runtime.AddCleanup(m, func(key mutexKey) { r.forget(key, known) }, key)
	return m
}

// forget removes an RWMutex that the program no longer refers to and that is not in use.
func (r *mutexes) forget(key mutexKey, known weak.Pointer[RWMutex]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known[key] == known { // else a new RWMutex has replaced it
		delete(r.known, key)
	}
}

// claim marks an RWMutex as in use, unless an RWMutex with that name and other settings is in use: goroutines that
// exclude each other in this process share a lease, and so its terms.
func (r *mutexes) claim(m *RWMutex) (other *RWMutex, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if other := r.inUse[m.name]; other != nil && other != m {
		return other, difference(m.name, &other.settings, &m.settings)
	}
	r.inUse[m.name] = m
	return nil, nil
}

// disclaim undoes claim. It does nothing if another place has claimed the name since.
func (r *mutexes) disclaim(m *RWMutex) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inUse[m.name] == m {
		delete(r.inUse, m.name)
	}
}

// used returns the RWMutex with that name that is in use, or nil. An RWMutex that only lingers is in use too: the
// process has the lock.
func (r *mutexes) used(name string) *RWMutex {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inUse[name]
}

// each returns the RWMutexes that are in use, without a copy of them all. A map may be changed between two steps of an
// iteration, so the mutex is held for each step and not between them: theirs is taken before it.
func (r *mutexes) each() iter.Seq[*RWMutex] {
	return func(yield func(*RWMutex) bool) {
		r.mu.Lock()
		for _, m := range r.inUse {
			r.mu.Unlock()
			if !yield(m) {
				return
			}
			r.mu.Lock()
		}
		r.mu.Unlock()
	}
}

// difference returns the error for a caller that finds the RWMutex of a name in use with other options. It names the
// option that differs.
func difference(name string, has, wants *settings.Lock) *OptionError {
	for _, o := range []struct {
		option     string
		has, wants any
	}{
		{"WithTTL", has.TTL, wants.TTL},
		{"WithMaxWait", has.MaxWait, wants.MaxWait},
		{"WithMaxHold", has.MaxHold, wants.MaxHold},
		{"WithMeta", has.Meta, wants.Meta},
		{"WithLinger", has.Linger, wants.Linger},
		{"WithBackgroundRelease", has.BackgroundRelease, wants.BackgroundRelease},
	} {
		if o.has != o.wants {
			rule := fmt.Sprintf("must be %v, as in the RWMutex %q that this process is using", o.has, name)
			if o.has == time.Duration(0) {
				rule = fmt.Sprintf("must not be set, as in the RWMutex %q that this process is using", name)
			}
			return &OptionError{Option: o.option, Value: o.wants, Rule: rule}
		}
	}
	rule := fmt.Sprintf("must be those of the RWMutex %q that this process is using", name)
	return &OptionError{Option: "options", Value: "others", Rule: rule}
}
