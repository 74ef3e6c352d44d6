package fencing

import (
	"context"
	"errors"
	"slices"
	"strings"
)

// Carrier is where fences travel between processes: [net/http.Header] is one,
// [MapCarrier] makes one of a map.
type Carrier interface {
	// Values returns every value of key, in the order in which they were added.
	Values(key string) []string
	// Add adds a value to those that key has.
	Add(key, value string)
}

// MapCarrier is a Carrier whose keys are in lower case, as gRPC's metadata has
// them: MapCarrier(md) is a Carrier over md.
type MapCarrier map[string][]string

// Values returns the values of key, whose case does not matter.
func (m MapCarrier) Values(key string) []string { return m[strings.ToLower(key)] }

// Add adds a value to those of key, whose case does not matter. The map must not
// be nil.
func (m MapCarrier) Add(key, value string) {
	key = strings.ToLower(key)
	m[key] = append(m[key], value)
}

// Inject adds each fence of ctx to c as a value of [HeaderName], and the owner of
// ctx as one of [OwnerHeaderName]. What c carries already, in whatever valid
// encoding, is not added again: injecting twice is harmless, and so is a proxy that
// copies the header and injects as well. If c carries another fence of the same
// resource, both are there, and the receiver refuses them. A fence that does not
// pass [Fence.Validate] is left out: the receiver finds it missing.
func Inject(ctx context.Context, c Carrier) {
	present := carried(c)
	for f := range All(ctx) {
		if f.Validate() == nil && !slices.Contains(present, f) {
			c.Add(HeaderName, FormatHeader(f))
		}
	}
	injectOwner(ctx, c)
}

// carried returns the fences of c's values that can be read.
func carried(c Carrier) []Fence {
	var fences []Fence
	for _, value := range c.Values(HeaderName) {
		if members, err := parseMembers(value); err == nil {
			fences = append(fences, members...)
		}
	}
	return fences
}

// Extract returns ctx with the fences and the owner that c carries. Without any it
// returns ctx as it is and no error: whether a fence is needed is for the [Guard]
// to say. If any value is refused, none is taken, and the error is a
// [*MalformedError]; see [ParseHeader] for what is refused, [OwnerHeaderName] for
// the form of an owner, and [MaxAhead] for tokens from the future. A nil option is
// refused with another error.
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
	// Backwards, so that All yields them in the sender's order.
	for _, f := range slices.Backward(fences) {
		ctx = NewContext(ctx, f)
	}
	return ctx, nil
}
