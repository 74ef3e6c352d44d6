package engine

import (
	"strings"
	"time"
)

// lockKey names a lock on every master. It is the second of the lock's keys, holds, and begins with the first, lock. A
// lease keeps only these two, in one string: its renewals name them. The other keys are made for each call.
type lockKey string

const holdsSuffix = ":h"

func (k lockKey) lock() string { return string(k[:len(k)-len(holdsSuffix)]) }

func (k lockKey) holds() string { return string(k) }

// keys are a lock's keys on every master, in the order in which the scripts name them: lock, holds, queue, aside. They
// share one hash tag, the encoded name, so a cluster keeps them in one slot. With several masters the last key is the
// marker of the master.
type keys [5]string

const lockKeys = 4

// tagEncoder keeps braces out of a hash tag, which ends at the first closing one. "%" is encoded so that no two names
// have the same keys.
var tagEncoder = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// keyspace names the keys of the locks under one prefix.
type keyspace struct {
	prefix string
	marker string // the key of a master's marker
	single bool   // there is one master; its scripts do not look at its marker
}

func newKeyspace(prefix string, masters int) keyspace {
	return keyspace{prefix: prefix, marker: prefix + ":master", single: masters == 1}
}

// of returns the key of the lock with this name.
func (s keyspace) of(name string) lockKey {
	return lockKey(s.prefix + ":{" + tag(name) + "}" + holdsSuffix)
}

// hold returns the id of a new hold, and the key of its lock.
func (s keyspace) hold(wall time.Duration, name string) (id string, of lockKey) {
	text := ulidText(wall)
	both := string(text[:]) + s.prefix + ":{" + tag(name) + "}" + holdsSuffix // one allocation
	return both[:len(text)], lockKey(both[len(text):])
}

func tag(name string) string {
	if strings.ContainsAny(name, "%{}") {
		return tagEncoder.Replace(name)
	}
	return name
}

// all returns all keys of a lock.
func (s keyspace) all(of lockKey) keys {
	lock := of.lock()
	both := lock + ":q" + lock + ":x" // one allocation
	half := len(both) / 2
	return keys{lock, of.holds(), both[:half], both[half:], s.marker}
}

// ofScript returns the keys that are sent with a script.
func (s keyspace) ofScript(k *keys) []string {
	if s.single {
		return k[:lockKeys]
	}
	return k[:]
}

// forCall returns the keys of a lock for a script call that outlives the caller's stack.
func (s keyspace) forCall(of lockKey) []string {
	k := s.all(of)
	return s.ofScript(&k)
}

// channel returns the channel on which a locker receives messages.
func (s keyspace) channel(client string) string { return s.prefix + ":c:" + client }
