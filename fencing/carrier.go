package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Carrier transports fences between processes: [net/http.Header] implements it, and [MapCarrier] adapts a map.
type Carrier interface {
	// Values returns every value of key, in the order in which they were added.
	Values(key string) []string
	// Add appends a value to the values of key.
	Add(key, value string)
}

// MapCarrier is a Carrier with keys in lower case, as in gRPC's metadata: MapCarrier(md) is a Carrier over md.
type MapCarrier map[string][]string

// Values returns the values of key. The case of key does not matter.
func (m MapCarrier) Values(key string) []string { return m[strings.ToLower(key)] }

// Add appends a value to the values of key. The case of key does not matter. The map must not be nil.
func (m MapCarrier) Add(key, value string) {
	key = strings.ToLower(key)
	m[key] = append(m[key], value)
}

// Inject adds each fence of ctx to c as a value of [HeaderName], and the owner of ctx as a value of [OwnerHeaderName].
// A fence that c already carries, in any valid encoding, is not added again: injecting twice is harmless, and so is a
// proxy that copies the header and injects as well. If c carries a different fence of the same resource, c then has
// both. A fence that does not pass [Fence.Validate] is left out: the receiver finds it missing.
//
// The error is the one with which [Extract] refuses what c carries then, a [*MalformedError]: do not send it. If there
// are more fences than a message may have, name those that the receiver needs with [Only], and begin with a new c.
func Inject(ctx context.Context, c Carrier) error {
	copied := len(c.Values(HeaderName)) > 0
	present := carried(c)
	for f := range All(ctx) {
		if f.Validate() == nil && !slices.Contains(present, f) {
			c.Add(HeaderName, FormatHeader(f))
		}
	}
	values := c.Values(HeaderName)
	if err := sendable(values, copied); err != nil {
		return fmt.Errorf("fencing: the receiver would refuse these %d fences, name those that it needs with Only: %w",
			len(values), err)
	}
	return injectOwner(ctx, c)
}

// sendable refuses what ParseHeader does. Values of Inject alone are one valid fence each, of different resources.
func sendable(values []string, copied bool) error {
	if copied {
		_, err := ParseHeader(values)
		return err
	}
	if len(values) > maxFences {
		return tooMany(values[maxFences])
	}
	return checkSize(values)
}

// injectOwner adds the owner of ctx to c, unless c carries it already. A different owner in c is not replaced: the
// receiver refuses the two.
func injectOwner(ctx context.Context, c Carrier) error {
	present, err := parseOwner(c.Values(OwnerHeaderName))
	if owner := OwnerFromContext(ctx); owner != nil {
		text := strings.ToUpper(owner.String())
		if isOwner(text) && (err != nil || string(present) != text) {
			c.Add(OwnerHeaderName, `"`+text+`"`)
			_, err = parseOwner(c.Values(OwnerHeaderName))
		}
	}
	if err != nil {
		return fmt.Errorf("fencing: the receiver would refuse this owner: %w", err)
	}
	return nil
}

// carried returns the fences of c that can be parsed.
func carried(c Carrier) []Fence {
	var fences []Fence
	for _, value := range c.Values(HeaderName) {
		if members, err := parseMembers(value); err == nil {
			fences = append(fences, members...)
		}
	}
	return fences
}

// Extract returns ctx with the fences and the owner that c carries. If c carries none, Extract returns ctx unchanged
// and no error: the [Guard] decides whether a fence is required. If any value is refused, none is taken, and the error
// is a [*MalformedError]; see [ParseHeader] for what is refused, [OwnerHeaderName] for the form of an owner, and
// [MaxAhead] for tokens from the future. A nil option is refused with another error.
func Extract(ctx context.Context, c Carrier, opts ...ExtractOption) (context.Context, error) {
	var limits extractLimits
	for _, opt := range opts {
		if opt == nil {
			return ctx, errors.New("fencing: an option of Extract is nil")
		}
		opt(&limits)
	}
	fences, err := ParseHeader(c.Values(HeaderName))
	if err != nil {
		return ctx, err
	}
	if err := limits.check(fences); err != nil {
		return ctx, err
	}
	owner, err := parseOwner(c.Values(OwnerHeaderName))
	if err != nil {
		return ctx, err
	}
	if owner != "" {
		ctx = NewOwnerContext(ctx, owner)
	}
	// Backwards, because All yields the fence added last first: the receiver's order is then the sender's.
	for _, f := range slices.Backward(fences) {
		ctx = NewContext(ctx, f)
	}
	return ctx, nil
}
