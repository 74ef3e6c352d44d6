package engine

import "strings"

// keys are a lock's keys on every master, in the order that the scripts name them: lock, holds, queue, aside. They
// share one hash tag, the encoded name, so a cluster keeps them in one slot. One of several masters has its marker as
// the last.
type keys [5]string

const lockKeys = 4

var suffixes = [lockKeys]string{"", ":h", ":q", ":x"}

var tagEncoder = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// keysOf builds all keys in one allocation: each is a part of one string.
func (e *Engine) keysOf(name string) keys {
	prefix := e.cfg.Prefix
	if strings.ContainsAny(name, "%{}") {
		name = tagEncoder.Replace(name)
	}
	base := len(prefix) + len(name) + 3
	var b strings.Builder
	b.Grow(lockKeys*base + (lockKeys-1)*2)
	var ends [lockKeys]int
	for i, suffix := range suffixes {
		b.WriteString(prefix)
		b.WriteString(":{")
		b.WriteString(name)
		b.WriteByte('}')
		b.WriteString(suffix)
		ends[i] = b.Len()
	}
	all, from := b.String(), 0
	var k keys
	for i, end := range ends {
		k[i], from = all[from:end], end
	}
	k[lockKeys] = e.markerKey
	return k
}

// keysAt returns all keys of the lock whose first one this is.
func (e *Engine) keysAt(lock string) (k keys) {
	for i, suffix := range suffixes {
		k[i] = lock + suffix
	}
	k[lockKeys] = e.markerKey
	return k
}

// scriptKeys returns those that go out with a script.
func (e *Engine) scriptKeys(k *keys) []string {
	if len(e.masters) == 1 {
		return k[:lockKeys]
	}
	return k[:]
}

func markerKey(prefix string) string { return prefix + ":master" }

// channel is where a locker's messages arrive.
func channel(prefix, client string) string { return prefix + ":c:" + client }
