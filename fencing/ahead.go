package fencing

import (
	"fmt"
	"time"
)

// ExtractOption sets a limit to what [Extract] takes from outside.
type ExtractOption func(*extractLimits)

// MaxAhead has [Extract] refuse a token that is more than d ahead of this machine's
// clock, as a [*MalformedError]. The locks of this module count in microseconds since
// 1970: a token is at least the time of its grant, and above it by little more than a
// second. So a token from the far future is no grant's; it comes from a mistake, a lie or
// a clock that is far off, and a register that it has raised would refuse every later
// holder until somebody resets it (see [Watermark.Reset]).
//
// Let d be more than the clocks of the machines may differ: a minute is plenty. Smaller
// tokens always pass, those of a lock that counts from 1 too.
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
		// No overflow: 2^53 microseconds are 285 years.
		if granted := time.UnixMicro(int64(f.Token)); granted.After(now.Add(l.ahead)) {
			return malformed("token", f.Token.String(), fmt.Sprintf(
				"for %q it is %v ahead of the clock here, the limit is %v",
				clip(f.Resource), granted.Sub(now).Round(time.Millisecond), l.ahead))
		}
	}
	return nil
}
