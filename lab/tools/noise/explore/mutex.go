package explore

import (
	"sync"

	"github.com/seed74116694/fencelock/lab/tools/noise/schedulenoise"
)

// Mutex is a sync.Mutex with the points that the overlay gives to other ones.
type Mutex struct{ mu sync.Mutex }

// Lock takes the mutex.
func (m *Mutex) Lock() {
	schedulenoise.BeforeLock(m.mu.TryLock, m.mu.Unlock)
	m.mu.Lock()
}

// Unlock gives it back.
func (m *Mutex) Unlock() {
	m.mu.Unlock()
	schedulenoise.Point()
}
