package rwlock_test

import (
	"strings"
	"testing"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// trickyPrefixes are some that New takes, and that are no text or have a meaning somewhere.
var trickyPrefixes = []string{
	"a\x00b", "a\x1fb", "a\x7fb", "a\x85b", "a\xa0b", "a\u00a0b", "a\xffb", "*", "a?b", "[a]", "a%b", "%d", "a\"b", "a'b",
	"\\", "a:b", "a:c:b", "^", "~", "+", "-", "名前", strings.Repeat("p", 128),
}

// A prefix is part of the channel that a hand-off is sent to, which scripts read from a text.
func TestHandOffsUnderAnyPrefix(t *testing.T) {
	everywhere(t, func(w *world) {
		for _, prefix := range trickyPrefixes {
			p, q := w.Process(rwlock.WithPrefix(prefix)), w.Process(rwlock.WithPrefix(prefix))
			held := p.Take("n", rwlock.Write)
			waiting := q.Acquire(w.Ctx, "n", rwlock.Write)
			w.Eventually("it waits", func() bool {
				s, err := p.Inspect(w.Ctx, "n")
				return err == nil && len(s.Waiters) == 1
			})
			w.Settle() // its subscription
			released := time.Now()
			w.Release(held)
			w.Release(waiting.Granted())
			w.RequireLess(waiting.At.Sub(released), time.Millisecond, prefix)
		}
	})
}
