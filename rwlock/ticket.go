package rwlock

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/settings"
)

// Ticket is a lock that Lease.Detach has left for another process, which takes it over with Locker.Adopt. As JSON, with
// the duration in milliseconds, it fits into a message or a row. A ticket is not signed: any client of the same Redis
// that has it can take the lock over, and no other client can, so it is to be treated like a password. Its JSON alone
// has the secret: no text of a ticket or of what contains one shows it.
type Ticket struct {
	Version     int // of the form of a ticket: 1
	Prefix      string
	Set         string // id of the masters of a quorum; "" for one Redis
	Name        string
	Mode        Mode
	Owner, Hold string // ULIDs
	Token       fencing.Token
	Remaining   time.Duration // for how long after Detach the lock is kept; Adopt does not count on it

	secret *string // proves that the hold was detached; fmt reads unexported fields too, but follows no pointer in them
}

// ticketVersion is the form of the tickets that this version makes and reads.
const ticketVersion = 1

// A secret is that of rand.Text, which may have more letters one day.
const (
	minSecret = 26
	maxSecret = 128
)

// TicketError is a ticket that Adopt does not take. The lock is not held by the caller. It matches ErrTicket.
type TicketError struct {
	Name   string
	Reason string
	Err    error // *BrokenError if an operator has broken the hold, or nil
}

func (e *TicketError) Error() string {
	text := fmt.Sprintf("%v: lock %q: %s", ErrTicket, e.Name, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *TicketError) Is(target error) bool { return target == ErrTicket }

func (e *TicketError) Unwrap() error { return e.Err }

// String names the lock, its mode and the token.
func (t Ticket) String() string {
	return fmt.Sprintf("ticket of %s lock %q, token %v", t.Mode, t.Name, t.Token)
}

// GoString is String, so that no format shows the hold or the secret.
func (t Ticket) GoString() string { return t.String() }

// LogValue is String.
func (t Ticket) LogValue() slog.Value { return slog.StringValue(t.String()) }

// ticketJSON is the form of a ticket.
type ticketJSON struct {
	Version     int           `json:"version"`
	Prefix      string        `json:"prefix"`
	Set         string        `json:"set,omitempty"`
	Name        string        `json:"name"`
	Mode        Mode          `json:"mode"`
	Owner       string        `json:"owner"`
	Hold        string        `json:"hold"`
	Token       fencing.Token `json:"token"`
	Secret      string        `json:"secret"`
	RemainingMs int64         `json:"remaining_ms"`
}

// MarshalJSON returns the ticket in its form for messages. A ticket that Detach has not made is a *TicketError.
func (t Ticket) MarshalJSON() ([]byte, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	return json.Marshal(ticketJSON{
		t.Version, t.Prefix, t.Set, t.Name, t.Mode, t.Owner, t.Hold, t.Token, *t.secret, t.Remaining.Milliseconds(),
	})
}

// UnmarshalJSON reads what MarshalJSON has returned. Anything else is a *TicketError, and t is unchanged; null leaves t
// unchanged.
func (t *Ticket) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	var read ticketJSON
	if err := json.Unmarshal(text, &read); err != nil {
		return &TicketError{Reason: "it is no ticket of this library, or damaged"}
	}
	const most = settings.MaxTTL / time.Millisecond
	if read.RemainingMs < 0 || read.RemainingMs > int64(most) {
		read.RemainingMs = -1
	}
	got := Ticket{
		read.Version, read.Prefix, read.Set, read.Name, read.Mode, read.Owner, read.Hold, read.Token,
		time.Duration(read.RemainingMs) * time.Millisecond, &read.Secret,
	}
	if err := got.check(); err != nil {
		return err
	}
	*t = got
	return nil
}

// check refuses a ticket that Detach cannot have made.
func (t Ticket) check() error {
	refuse := func(format string, args ...any) error {
		return &TicketError{Name: t.Name, Reason: fmt.Sprintf(format, args...)}
	}
	if t.Version == 0 && t.Hold == "" {
		return refuse("it is empty, or no ticket of this library")
	}
	if t.Version != ticketVersion {
		return refuse("its version is %d, and this program reads version %d", t.Version, ticketVersion)
	}
	if invalid := settings.CheckName(t.Name); invalid != nil {
		return &TicketError{Reason: fmt.Sprintf("its name of %d bytes %s", len(t.Name), invalid.Rule)}
	}
	_, hold := ulid.ParseStrict(t.Hold)
	_, owner := ulid.ParseStrict(t.Owner)
	switch {
	case hold != nil || owner != nil:
		return refuse("its hold or owner is damaged")
	case t.Mode != Read && t.Mode != Write:
		return refuse("its mode is %v", t.Mode)
	case t.Token == 0 || t.Token > fencing.MaxToken:
		return refuse("its token is %v, which no lock has", t.Token)
	case t.secret == nil || len(*t.secret) < minSecret || len(*t.secret) > maxSecret:
		return refuse("its secret is damaged")
	case t.Remaining < 0 || t.Remaining > settings.MaxTTL:
		return refuse("its remaining time is damaged")
	}
	return nil
}
