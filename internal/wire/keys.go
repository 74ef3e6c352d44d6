package wire

import "strings"

// LockKey names a lock on every master. It is the second of the lock's keys, holds, and begins with the first, lock. A
// lease keeps only these two, in one string: its renewals name them. The other keys are made for each call.
type LockKey string

const holdsSuffix = ":h"

// LockHash returns the first key of the lock, the hash of its grants.
func (k LockKey) LockHash() string { return string(k[:len(k)-len(holdsSuffix)]) }

// Holds returns the second key of the lock.
func (k LockKey) Holds() string { return string(k) }

// Keys are a lock's keys on every master, in the order in which the scripts name them: lock, holds, queue, aside. They
// share one hash tag, the encoded name, so a cluster keeps them in one slot. With several masters the last key is the
// marker of the master.
type Keys [5]string

const lockKeys = 4

// tagEncoder keeps braces out of a hash tag, which ends at the first closing one. "%" is encoded so that no two names
// have the same keys.
var tagEncoder = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// Keyspace names the keys of the locks under one prefix.
type Keyspace struct {
	Marker string // the key of a master's marker
	prefix string
	single bool // there is one master; its scripts do not look at its marker
}

// NewKeyspace returns the keyspace of a prefix on so many masters.
func NewKeyspace(prefix string, masters int) Keyspace {
	return Keyspace{Marker: prefix + ":master", prefix: prefix, single: masters == 1}
}

// Of returns the key of the lock with this name.
func (s Keyspace) Of(name string) LockKey {
	return LockKey(s.prefix + ":{" + tag(name) + "}" + holdsSuffix)
}

// NewHold returns the id of a new hold as a string, and the key of its lock, which share one allocation.
func (s Keyspace) NewHold(id []byte, name string) (hold string, of LockKey) {
	both := string(id) + s.prefix + ":{" + tag(name) + "}" + holdsSuffix
	return both[:len(id)], LockKey(both[len(id):])
}

func tag(name string) string {
	if strings.ContainsAny(name, "%{}") {
		return tagEncoder.Replace(name)
	}
	return name
}

// Pattern returns the glob pattern of SCAN that matches the first keys of all locks whose names begin with namePrefix.
// Their other keys do not end with the brace.
func (s Keyspace) Pattern(namePrefix string) string {
	return globEscaper.Replace(s.prefix+":{"+tag(namePrefix)) + "*}"
}

var globEscaper = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

// NameOf returns the name of the lock whose first key this is. ok is false for a key that no lock has.
func (s Keyspace) NameOf(key string) (name string, ok bool) {
	encoded, ok := strings.CutPrefix(key, s.prefix+":{")
	encoded, closed := strings.CutSuffix(encoded, "}")
	name = tagDecoder.Replace(encoded)
	return name, ok && closed && name != "" && tag(name) == encoded
}

var tagDecoder = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

// All returns all keys of a lock.
func (s Keyspace) All(of LockKey) Keys {
	lock := string(of[:len(of)-len(holdsSuffix)])
	both := lock + ":q" + lock + ":x" // one allocation
	half := len(both) / 2
	return Keys{lock, string(of), both[:half], both[half:], s.Marker}
}

// OfScript returns the keys that are sent with a script.
func (s Keyspace) OfScript(k *Keys) []string {
	if s.single {
		return k[:lockKeys]
	}
	return k[:]
}

// OfLock returns the keys of the lock alone.
func (k *Keys) OfLock() []string { return k[:lockKeys] }

// ForCall returns the keys of a lock for a script call that outlives the caller's stack.
func (s Keyspace) ForCall(of LockKey) []string {
	k := s.All(of)
	return s.OfScript(&k)
}

// Channel returns the channel on which a locker receives messages.
func (s Keyspace) Channel(client string) string { return s.prefix + ":c:" + client }
