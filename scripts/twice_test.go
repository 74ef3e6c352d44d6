package scripts_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

// step is one request of a sequence, what the first run of it must answer, and for how long nothing happens before.
type step struct {
	pause  time.Duration
	call   call
	status int64
	second int64 // the status of the second run, where it differs
}

const (
	ttl   = 400 // ms
	claim = 200 // ms
	same  = -1
)

func is(status int64, c call) step { return step{call: c, status: status, second: same} }

func ends(status int64, c call) step { return step{call: c, status: status, second: 0} }

func after(d time.Duration, s step) step {
	s.pause = d
	return s
}

// sequences take a lock through its whole life. The hold ids order as their numbers do.
var sequences = map[string][]step{
	"write, hand-off, gone": {
		is(1, acquire("01", "A", "w", ttl, claim, "a")),
		is(2, acquire("02", "B", "w", ttl, claim, "0")),
		is(2, acquire("02", "B", "r", ttl, claim, "0")),
		is(0, acquire("03", "B", "w", ttl, claim, "a")),
		is(0, acquire("04", "C", "r", ttl, claim, "a")),
		is(1, renew("01", ttl)),
		is(0, renew("03", ttl)),
		is(0, refresh("03", claim, "04", claim)),
		ends(1, release("01", 0)),
		is(1, refresh("03", claim)),
		is(1, renew("03", ttl)),
		is(0, renew("01", ttl)),
		ends(1, release("03", 0)),
		is(1, renew("04", ttl)),
		ends(1, release("04", 0)),
		is(0, release("04", 0)),
		is(0, renew("04", ttl)),
		is(2, refresh("04", claim)),
	},
	"readers and a writer between them": {
		is(1, acquire("01", "A", "r", ttl, claim, "a")),
		is(1, acquire("02", "B", "r", 2*ttl, claim, "a")),
		is(0, acquire("03", "C", "w", ttl, claim, "a")),
		is(0, acquire("04", "D", "r", ttl, claim, "a")),
		is(2, acquire("05", "E", "r", ttl, claim, "0")),
		ends(1, release("02", 0)),
		ends(2, release("03", 0)),
		is(1, renew("04", ttl)),
		is(0, acquire("06", "F", "w", ttl, claim, "a")),
		ends(1, release("04", 0)),
		ends(1, release("01", 0)),
		is(1, renew("06", ttl)),
		ends(1, release("06", 0)),
	},
	"expiry": {
		is(1, acquire("01", "A", "w", ttl, claim, "a")),
		is(0, acquire("02", "B", "w", 2*ttl, 2*ttl, "a")),
		is(0, acquire("03", "C", "w", ttl, claim, "a")),
		after(ttl*time.Millisecond, is(1, refresh("02", 2*ttl))),
		is(0, renew("01", ttl)),
		is(0, release("01", 0)),
		is(2, refresh("03", claim)),
		is(1, renew("02", 2*ttl)),
		after(2*ttl*time.Millisecond, is(0, renew("02", ttl))),
		is(1, acquire("04", "D", "r", ttl, claim, "a")),
		after(2*ttl*time.Millisecond, is(0, release("04", 0))),
	},
	"a short renewal shortens nothing": {
		is(1, acquire("01", "A", "w", 3*ttl, claim, "a")),
		is(1, renew("01", claim)),
		after(ttl*time.Millisecond, is(1, renew("01", claim))),
		ends(1, release("01", 0)),
	},
	"tombstones": {
		is(0, release("01", ttl)),
		is(3, acquire("01", "A", "w", ttl, claim, "a")),
		is(3, join("01", "A", "w", ttl, claim)),
		is(1, acquire("02", "B", "w", ttl, claim, "a")),
		ends(1, releaseAll("02", ttl)),
		is(3, acquire("02", "B", "w", ttl, claim, "a")),
		is(1, acquire("03", "C", "w", ttl, claim, "a")),
		is(0, acquire("04", "C", "w", ttl, claim, "a")),
		ends(2, releaseAll("04", ttl)),
		is(3, acquire("04", "C", "w", ttl, claim, "a")),
		after(2*ttl*time.Millisecond, is(1, acquire("01", "A", "w", ttl, claim, "a"))),
		ends(1, release("01", 0)),
	},
	"nesting": {
		is(0, join("01", "A", "w", ttl, claim)),
		is(1, acquire("02", "A", "w", ttl, claim, "a")),
		is(1, join("03", "A", "w", 2*ttl, claim)),
		is(1, join("04", "A", "r", ttl, claim)),
		is(0, join("05", "B", "r", ttl, claim)),
		is(0, acquire("06", "B", "r", ttl, claim, "a")),
		ends(1, release("02", 0)),
		is(1, renew("03", ttl)),
		ends(1, release("03", 0)),
		ends(1, release("04", 0)),
		is(1, renew("06", ttl)),
		is(2, join("07", "B", "w", ttl, claim)),
		is(1, join("08", "B", "r", ttl, claim)),
		ends(1, release("06", 0)),
		ends(1, release("08", 0)),
	},
	"one of several masters": {
		is(4, onQuorum("n", 100, scripts.Acquire, "05", "A", "w", "c", ttl, claim, "h", "m")),
		{call: call{scripts.Marker, []string{markerKey}, []string{"birth", "rules", "10000"}}, status: same, second: same},
		is(1, onQuorum("n", 100, scripts.Acquire, "05", "A", "w", "c", ttl, claim, "h", "m")),
		is(0, onQuorum("n", 100, scripts.Acquire, "03", "B", "w", "c", ttl, claim, "h", "m")),
		is(0, onQuorum("n", 100, scripts.Raise, "03", 1)),
		is(0, onQuorum("n", 100, scripts.Raise, "05", 1)),
		is(1, onQuorum("n", 100, scripts.Raise, "05", 1<<52)),
		is(0, onQuorum("n", 100, scripts.Yield, "05", claim, 1<<52)),
		is(1, onQuorum("n", 100, scripts.Yield, "03", claim, 1<<52+1)),
		is(2, onQuorum("n", 100, scripts.Yield, "09", claim, 1)),
		is(1, onQuorum("n", 100, scripts.Renew, "03", ttl)),
		ends(1, onQuorum("n", 100, scripts.Release, "03", 0)),
		is(1, onQuorum("n", 100, scripts.Renew, "05", ttl)),
		ends(1, onQuorum("n", 100, scripts.Release, "05", 0)),
	},
}

func status(c call, reply []any) int64 {
	if c.script == scripts.Refresh {
		return reply[2].(int64)
	}
	return reply[0].(int64)
}

func TestEveryScriptTwiceIsTheSameAsOnce(t *testing.T) {
	for name, steps := range sequences {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // on real servers most of the time is waiting
			everywhere(t, func(b *bed) {
				for i, s := range steps {
					if s.pause > 0 {
						b.pass(s.pause)
					}
					what := fmt.Sprintf("step %d, %s %q", i, s.call.script, s.call.args)
					first := b.run(s.call)
					if s.status != same {
						require.Equal(b.t, s.status, status(s.call, first), what)
					}
					once := b.dump()
					second := b.run(s.call)
					twice := b.dump()
					if s.second != same {
						require.Equal(b.t, s.second, status(s.call, second), what)
						first[0] = s.second
					}
					require.Equal(b.t, b.repeatable(s.call, first), b.repeatable(s.call, second), what)
					require.Equal(b.t, b.repeatableState(once), b.repeatableState(twice), what)
				}
				for key := range b.dump() {
					if key != lockKeys("n")[4] && key != markerKey {
						b.pass(2 * ttl * time.Millisecond) // a tombstone
						break
					}
				}
				for key := range b.dump() {
					require.Contains(b.t, []string{lockKeys("n")[4], markerKey}, key)
				}
			})
		})
	}
}

// repeatable returns what a second run must answer alike. In fake time that is everything; on a real server the times
// that a reply tells go on.
func (b *bed) repeatable(c call, reply []any) (kept []any) {
	if b.mini != nil {
		return reply
	}
	switch c.script {
	case scripts.Refresh: // server us, wake, then status, token, left for each waiter
		for i, field := range reply[2:] {
			if i%3 != 2 {
				kept = append(kept, field)
			}
		}
		return kept
	case scripts.Release: // status, server us
		return reply[:1]
	case scripts.Marker: // server us, then what is stored
		return reply[1:]
	default: // status, token, left, server us, then the holder's record and id, or the owner's counter
		kept = append(kept, reply[:2]...)
		return append(kept, reply[min(4, len(reply)):min(6, len(reply))]...)
	}
}

var tombstone = regexp.MustCompile(`=x x - - 0 \d+`)

// repeatableState is repeatable for a dump: without the expiries, which are set from the server's clock.
func (b *bed) repeatableState(dump map[string][]string) map[string][]string {
	if b.mini != nil {
		return dump
	}
	kept := map[string][]string{}
	for key, content := range dump {
		kept[key] = []string{}
		for _, entry := range content[:len(content)-1] { // the last is what is left of the key
			if strings.HasSuffix(key, ":h") || strings.HasSuffix(key, ":w") {
				entry, _, _ = strings.Cut(entry, " ")
			}
			kept[key] = append(kept[key], tombstone.ReplaceAllString(entry, "=x x - - 0 since"))
		}
	}
	return kept
}
