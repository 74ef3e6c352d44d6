package wire

import "strings"

// AllOf returns all keys of a lock, in the order of the scripts: lock, which is its key everywhere else, holds, queue,
// aside. They share one hash tag, the encoded name, so a Cluster keeps them in one slot.
func AllOf(lock string) []string { return []string{lock, lock + ":h", lock + ":q", lock + ":x"} }

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
func (s Keyspace) Of(name string) string { return s.prefix + ":{" + tag(name) + "}" }

// NewHold returns the id of a new hold as a string, and the key of its lock, which share one allocation.
func (s Keyspace) NewHold(id []byte, name string) (hold, of string) {
	both := string(id) + s.prefix + ":{" + tag(name) + "}"
	return both[:len(id)], both[len(id):]
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

// ForCall appends the keys that are sent with a script: the lock's, and with several masters the marker of the master.
func (s Keyspace) ForCall(to []string, lock string) []string {
	if s.single {
		return append(to, lock)
	}
	return append(to, lock, s.Marker)
}

// Channel returns the channel on which a locker receives messages.
func (s Keyspace) Channel(client string) string { return s.prefix + ":c:" + client }
