package redlock_test

import (
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strings"
	"sync"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// scriptBook tells which script a command runs, also where what is sent is the script with something after it. It
// learns digests from the commands that send a script whole.
type scriptBook struct {
	mu      sync.Mutex
	digests map[string]scripts.Name
}

func newScriptBook() *scriptBook {
	b := &scriptBook{digests: make(map[string]scripts.Name)}
	for name, source := range scripts.All() {
		b.digests[digest(source)] = name
	}
	return b
}

// watch learns from all commands of a peer. It is to be called before the peer's first acquisition.
func (b *scriptBook) watch(peers ...*peer) {
	for _, p := range peers {
		for _, link := range p.links {
			link.OnCommand(func(cmd []string) { b.nameOf(cmd) })
		}
	}
}

func (b *scriptBook) nameOf(cmd []string) scripts.Name {
	if len(cmd) < 2 {
		return ""
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if testredis.Named("EVAL")(cmd) {
		for name, source := range scripts.All() {
			if strings.HasPrefix(cmd[1], source) {
				b.digests[digest(cmd[1])] = name
				return name
			}
		}
	}
	return b.digests[cmd[1]]
}

// running matches the commands that run one of these scripts.
func (b *scriptBook) running(names ...scripts.Name) func(cmd []string) bool {
	return func(cmd []string) bool {
		name := b.nameOf(cmd)
		return name != "" && slices.Contains(names, name)
	}
}

func digest(source string) string {
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:])
}
