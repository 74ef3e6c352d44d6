package rwlockotel

import "github.com/seed74116694/fencelock/rwlock"

// Values returns what would be exported of s, by instrument.
func Values(s rwlock.Stats) map[string][]int64 {
	all := map[string][]int64{}
	for _, of := range statistics {
		for _, v := range of.read(s) {
			all[of.name] = append(all[of.name], v.n)
		}
	}
	return all
}

// Open returns how many leases are noted as held.
func (t *Telemetry) Open() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.granted)
}
