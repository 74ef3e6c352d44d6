package rwlock

import (
	"fmt"
	"runtime"
	"sync"
	"weak"

	"github.com/seed74116694/fencelock/internal/settings"
)

// mutexes are the RWMutexes of a locker by name, so that all goroutines that ask for a name share one. It keeps those
// that are held. One that is not held lives for as long as somebody refers to it.
type mutexes struct {
	closed chan struct{} // closed with the locker
	once   sync.Once

	mu     sync.Mutex
	byName map[string]mutexEntry
}

type mutexEntry struct {
	known weak.Pointer[RWMutex]
	held  *RWMutex // or nil
}

func newMutexes() *mutexes {
	return &mutexes{closed: make(chan struct{}), byName: make(map[string]mutexEntry)}
}

// close lets everybody know who waits in this process.
func (r *mutexes) close() { r.once.Do(func() { close(r.closed) }) }

// get returns the RWMutex of that name: the one that there is, one that fails with the difference if its settings are
// others, or the one that create makes.
func (r *mutexes) get(name string, s settings.Lock, create func() *RWMutex) *RWMutex {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.byName[name].known.Value(); m != nil {
		if m.settings != s {
			return &RWMutex{name: name, refused: difference(name, &m.settings, &s)}
		}
		return m
	}
	m := create()
	known := weak.Make(m)
	r.byName[name] = mutexEntry{known: known}
	runtime.AddCleanup(m, func(name string) { r.forget(name, known) }, name)
	return m
}

// forget takes out an RWMutex that nobody can refer to any more.
func (r *mutexes) forget(name string, known weak.Pointer[RWMutex]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byName[name].known == known { // else there is another one by now
		delete(r.byName, name)
	}
}

// keep holds on to an RWMutex while it is held: whoever locked it may ask for it by name to unlock it.
func (r *mutexes) keep(m *RWMutex) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byName[m.name]
	e.held = m
	r.byName[m.name] = e
}

// letGo undoes keep.
func (r *mutexes) letGo(m *RWMutex) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.byName[m.name]
	e.held = nil
	r.byName[m.name] = e
}

// difference says which option differs: goroutines that share a lease share its terms.
func difference(name string, has, wants *settings.Lock) *OptionError {
	for _, o := range []struct {
		option     string
		has, wants any
	}{
		{"WithTTL", has.TTL, wants.TTL},
		{"WithMaxWait", has.MaxWait, wants.MaxWait},
		{"WithMaxHold", has.MaxHold, wants.MaxHold},
		{"WithMeta", has.Meta, wants.Meta},
		{"WithoutRenewal", !has.Renew, !wants.Renew},
	} {
		if o.has != o.wants {
			rule := fmt.Sprintf("must be %v, as in the RWMutex %q that there is: its users share a lease", o.has, name)
			return &OptionError{Option: o.option, Value: o.wants, Rule: rule}
		}
	}
	return &OptionError{Option: "options", Value: "", Rule: fmt.Sprintf("must be those of the RWMutex %q that there is", name)}
}
