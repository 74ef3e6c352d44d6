package engine

import "strings"

// keys are a lock's keys on every master, in the order that the scripts name them: lock, holds, queue, aside. They
// share one hash tag, the encoded name, so a cluster keeps them in one slot. One of several masters has its marker as
// the last.
type keys [5]string

const lockKeys = 4

var suffixes = [lockKeys]string{"", ":h", ":q", ":x"}

// tagEncoder keeps braces out of a hash tag, which ends at the first closing one. "%" is encoded so that no two names
// have the same keys.
var tagEncoder = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// keyspace names the keys of the locks under one prefix.
type keyspace struct {
	prefix string
	marker string // the key of a master's marker
	single bool   // there is one master, whose scripts do not look at its marker
}

func newKeyspace(prefix string, masters int) keyspace {
	return keyspace{prefix: prefix, marker: prefix + ":master", single: masters == 1}
}

// of builds all keys in one allocation: each is a part of one string.
func (s keyspace) of(name string) keys {
	prefix := s.prefix
	if strings.ContainsAny(name, "%{}") {
		name = tagEncoder.Replace(name)
	}
	base := len(prefix) + len(name) + 3
	var b strings.Builder
	// One builder for all: an acquisition makes no other garbage for its keys.
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
	// The keys share the builder's memory.
	all, from := b.String(), 0
	var k keys
	for i, end := range ends {
		k[i], from = all[from:end], end
	}
	k[lockKeys] = s.marker
	return k
}

// at returns all keys of the lock whose first one this is.
func (s keyspace) at(lock string) (k keys) {
	for i, suffix := range suffixes {
		k[i] = lock + suffix
	}
	k[lockKeys] = s.marker
	return k
}

// ofScript returns those that go out with a script.
func (s keyspace) ofScript(k *keys) []string {
	if s.single {
		return k[:lockKeys]
	}
	return k[:]
}

// channel is where a locker's messages arrive.
func (s keyspace) channel(client string) string { return s.prefix + ":c:" + client }
