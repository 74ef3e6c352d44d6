package fencing

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

var (
	// ErrStale says that a newer token has been seen: whoever shows this one lost
	// its lock without noticing. Trying again with the same token never helps.
	// It comes as a [*StaleError].
	ErrStale = errors.New("fencing: stale token")

	// ErrLost says that whoever held a lock has lost it without giving it up. It
	// comes as the lock's own error, such as a *rwlock.LostError, or as a
	// [*LostError] from another process. It says nothing of the work: what a guard
	// had accepted before the loss stands.
	ErrLost = errors.New("fencing: lock lost")

	// ErrMissing says that an access to a guarded resource carries no token.
	ErrMissing = errors.New("fencing: no token")

	// ErrMalformed says that something is no token, mode, resource or header.
	// It comes as a [*MalformedError].
	ErrMalformed = errors.New("fencing: malformed")

	// ErrNested says that a resource was accessed inside an access of the same
	// resource, under its context: it would wait for itself. Nothing was done.
	ErrNested = errors.New("fencing: access inside an access of the same resource")
)

// StaleError is an access that was refused; it matches [ErrStale].
type StaleError struct {
	Resource string
	Got      Token // what the access showed
	Seen     Token // the greatest token that refused it
}

// Error names the resource and both tokens.
func (e *StaleError) Error() string {
	return fmt.Sprintf("%v: %q has seen %d, got %d", ErrStale, e.Resource, uint64(e.Seen), uint64(e.Got))
}

// Unwrap returns [ErrStale].
func (e *StaleError) Unwrap() error { return ErrStale }

// LostError is the loss of a lock as it is told from one process to another; it
// matches [ErrLost]. [errors.As] makes one of a *rwlock.LostError.
type LostError struct {
	Resource string
	Token    Token  // of the hold that was lost
	Reason   string // for people
}

// Error names the resource, the token and the reason.
func (e *LostError) Error() string {
	return fmt.Sprintf("%v: %q with token %d: %s", ErrLost, e.Resource, uint64(e.Token), e.Reason)
}

// Unwrap returns [ErrLost].
func (e *LostError) Unwrap() error { return ErrLost }

// MalformedError is a text or value that was refused; it matches [ErrMalformed].
type MalformedError struct {
	What   string // what it was to be: "token", "mode", "resource", "header", ...
	Input  string // what was refused, cut to some 64 bytes
	Reason string // the rule that it breaks
}

// Error names what the input was to be, the input and the rule.
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

// clip keeps hostile input from filling somebody's log; it cuts between runes.
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
