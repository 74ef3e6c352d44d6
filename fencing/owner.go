package fencing

import (
	"context"
	"fmt"
	"strings"
)

// OwnerHeaderName is the field that carries the owner: the logical thread of control for which package reentrant takes
// locks, so that a process that serves a call joins the holds of its caller. In gRPC's metadata its name is in lower
// case. It is a structured field (RFC 8941) with one String:
//
//	Fencing-Owner: "01K9Z3NDEKTSV4RRFFQ69G5FAV"
//
// An owner is a ULID other than zero: 26 digits of Crockford's base 32, in either case. Any client that knows it can
// join the owner's holds, so accept it from authenticated callers only, and keep it out of public logs.
const OwnerHeaderName = "Fencing-Owner"

// ownerLen is the number of digits of a ULID.
const ownerLen = 26

type ownerKey struct{}

// NewOwnerContext returns a context for which locks are taken on behalf of owner, in the place of any owner that ctx
// has. It is for packages that take locks, such as reentrant. owner.String returns a ULID in the form of
// [OwnerHeaderName], or "" for no owner.
func NewOwnerContext(ctx context.Context, owner fmt.Stringer) context.Context {
	return context.WithValue(ctx, ownerKey{}, owner)
}

// OwnerFromContext returns the owner that was given to [NewOwnerContext] or extracted by [Extract]; nil if there is
// none.
func OwnerFromContext(ctx context.Context) fmt.Stringer {
	owner, _ := ctx.Value(ownerKey{}).(fmt.Stringer)
	return owner
}

// ownerText is an owner from another process, in capitals.
type ownerText string

func (o ownerText) String() string { return string(o) }

// parseOwner parses the values of [OwnerHeaderName] and returns "" if they name no owner. Several values are accepted
// if they are the same.
func parseOwner(values []string) (ownerText, error) {
	if err := checkSize(values); err != nil {
		return "", err
	}
	var owner ownerText
	for _, value := range values {
		s := &scanner{value: value, rest: strings.Trim(value, " ")}
		for s.rest != "" {
			found, err := s.owner()
			if err != nil {
				return "", err
			}
			if owner != "" && found != owner {
				return "", malformed("owner", value, "a second owner")
			}
			owner = found
			if err := s.separator(); err != nil {
				return "", err
			}
		}
	}
	return owner, nil
}

func (s *scanner) owner() (ownerText, error) {
	text, err := s.quoted()
	if err != nil {
		return "", err
	}
	owner := strings.ToUpper(text)
	if !isOwner(owner) {
		return "", malformed("owner", text, "it must be a ULID other than zero")
	}
	return ownerText(owner), nil
}

// isOwner reports whether text is a ULID other than zero, in capitals. Its 26 digits have
// 130 bits, two more than a ULID, so the first is at most 7.
func isOwner(text string) bool {
	if len(text) != ownerLen || text[0] > '7' || text == strings.Repeat("0", ownerLen) {
		return false
	}
	for i := range len(text) {
		if strings.IndexByte("0123456789ABCDEFGHJKMNPQRSTVWXYZ", text[i]) < 0 {
			return false
		}
	}
	return true
}
