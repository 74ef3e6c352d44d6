package engine

import (
	"strings"
)

// keys are a lock's keys on every master, in the order that the scripts name them. They share one hash tag, the
// encoded name, so a cluster keeps them in one slot. One of several masters, which is never a cluster, has its marker
// as the sixth.
type keys [6]string

const ownKeys = 5

var suffixes = [ownKeys]string{"", ":h", ":q", ":w", ":t"}

var tagEncoder = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// newKeys builds all keys in one allocation: each is a part of one string.
func (e *Engine) keysOf(name string) keys {
	prefix := e.cfg.Prefix
	if strings.ContainsAny(name, "%{}") {
		name = tagEncoder.Replace(name)
	}
	base := len(prefix) + len(name) + 3
	var b strings.Builder
	b.Grow(len(suffixes)*base + 4*2)
	var ends [len(suffixes)]int
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
	k[ownKeys] = e.markerKey
	return k
}

// sent returns those that go out with a script.
func (e *Engine) sent(k *keys) []string {
	if len(e.masters) == 1 {
		return k[:ownKeys]
	}
	return k[:]
}

func markerKey(prefix string) string { return prefix + ":master" }

// channel is where a locker hears of its hand-offs; admit in prelude.lua publishes there.
func channel(prefix, client string) string { return prefix + ":c:" + client }
