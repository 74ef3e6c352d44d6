package fencing

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"
)

var (
	// ErrStale reports that the guard has accepted a newer token: the holder of this token lost its lock without
	// noticing. Retrying with the same token never helps. It comes as a [*StaleError].
	ErrStale = errors.New("fencing: stale token")

	// ErrLost reports that a holder lost its lock without releasing it. It comes as the lock's own error, such as a
	// *rwlock.LostError, or as a [*LostError] from another process. It does not describe the work: accesses that a
	// guard accepted before the loss stand.
	ErrLost = errors.New("fencing: lock lost")

	// ErrMissing reports that an access to a guarded resource carries no token.
	ErrMissing = errors.New("fencing: no token")

	// ErrMalformed reports that a value is not a valid token, mode, resource or header. It comes as a
	// [*MalformedError].
	ErrMalformed = errors.New("fencing: malformed")

	// ErrNested reports that a resource was accessed inside an access of the same resource, under its context: it would
	// wait for itself. Nothing was done.
	ErrNested = errors.New("fencing: access inside an access of the same resource")
)

// StaleError is a refused access; it matches [ErrStale].
type StaleError struct {
	Resource string
	Got      Token // the token of the access
	Seen     Token // the greatest token that refused it
}

// Error names the resource and both tokens.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: %q has seen %d, got %d", ErrStale, e.Resource, uint64(e.Seen), uint64(e.Got))
}

// Unwrap returns [ErrStale].
func (e *StaleError) Unwrap() error { return ErrStale }

// LostError is the loss of a lock as one process reports it to another; it matches [ErrLost]. [errors.As] converts a
// *rwlock.LostError into one.
type LostError struct {
	Resource string
	Token    Token  // of the hold that was lost
	Reason   string // human-readable
}

// Error names the resource, the token and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("%v: %q with token %d: %s", ErrLost, e.Resource, uint64(e.Token), e.Reason)
}

// Unwrap returns [ErrLost].
func (e *LostError) Unwrap() error { return ErrLost }

// MalformedError is a refused text or value; it matches [ErrMalformed].
type MalformedError struct {
	What   string // the expected kind: "token", "mode", "resource", "header", ...
	Input  string // the refused input, cut to some 64 bytes
	Reason string // the violated rule
}

// Error names the expected kind, the input and the rule.
func (e *MalformedError) Error() string {
	return fmt.Sprintf("%v %s %q: %s", ErrMalformed, e.What, e.Input, e.Reason)
}

// Unwrap returns [ErrMalformed].
func (e *MalformedError) Unwrap() error { return ErrMalformed }

func malformed(what, input, reason string) error {
	return &MalformedError{What: what, Input: clip(input), Reason: reason}
}

func missing(resource string) error {
	return fmt.Errorf("%w for %q", ErrMissing, clip(resource))
}

// clip keeps hostile input from filling a log; it cuts between runes.
func clip(s string) string {
	const limit = 64
	if len(s) <= limit {
		return s
	}
	end := limit
	for end > limit-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}

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
