package fencing

import (
	"fmt"
	"time"
)

// ExtractOption limits what [Extract] accepts from another process.
type ExtractOption func(*extractLimits)

// MaxAhead makes [Extract] refuse, with a [*MalformedError], a token that is more than d ahead of this machine's clock.
// The locks of this module count in microseconds since 1970: a token is at least the time of its grant, and exceeds
// that time by little more than a second. A token from the far future therefore belongs to no grant. It comes from a
// mistake, a forgery or a clock that is far off, and a register that it has raised refuses every later holder until it
// is reset (see [Watermark.Reset]).
//
// Let d exceed the difference between the clocks of the machines: a minute is plenty. Smaller tokens always pass,
// including the tokens of a lock that counts from 1.
func MaxAhead(d time.Duration) ExtractOption {
	return func(l *extractLimits) { l.ahead, l.bounded = d, true }
}

// extractLimits are the options of one Extract.
type extractLimits struct {
	ahead   time.Duration
	bounded bool // by ahead, which may be zero
}

func (l extractLimits) check(fences []Fence) error {
	if !l.bounded {
		return nil
	}
	now := time.Now()
	for _, f := range fences {
		// This cannot overflow: 2^53 microseconds are 285 years.
		if granted := time.UnixMicro(int64(f.Token)); granted.After(now.Add(l.ahead)) {
			return malformed("token", f.Token.String(), fmt.Sprintf(
				"for %q it is %v ahead of the clock here, the limit is %v",
				clip(f.Resource), granted.Sub(now).Round(time.Millisecond), l.ahead))
		}
	}
	return nil
}
