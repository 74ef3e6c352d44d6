package wire

import (
	"math"
	"strconv"
	"time"

	"github.com/seed74116694/fencelock/fencing"
)

// Millis is a duration as the scripts read it: whole milliseconds, formatted once for many requests.
type Millis string

// FormatMillis returns a duration as an argument. Parts of a millisecond are left out.
func FormatMillis(d time.Duration) Millis { return Millis(strconv.FormatInt(d.Milliseconds(), 10)) }

// NoMillis is the duration 0.
const NoMillis Millis = "0"

// maxMillis is the longest duration of a reply: added to a time of any clock it is a time.Duration still.
const maxMillis = int64(math.MaxInt64 / 2 / time.Millisecond)

// tokenArg formats a token. It is written in full: Lua's own conversion loses digits from 1e14 on.
func tokenArg(t fencing.Token) string { return strconv.FormatUint(uint64(t), 10) }

func isToken(n int64) bool { return n > 0 && n <= int64(fencing.MaxToken) }

func modeArg(m fencing.Mode) string {
	if m == fencing.Write {
		return "w"
	}
	return "r"
}

func readMode(s string) (m fencing.Mode, ok bool) {
	switch s {
	case "r":
		return fencing.Read, true
	case "w":
		return fencing.Write, true
	default:
		return 0, false
	}
}

func flagArg(set bool) string {
	if set {
		return "1"
	}
	return "0"
}
