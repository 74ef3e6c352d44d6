package fencing

import (
	"context"
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

// Inject adds each fence of ctx to c as a value of [HeaderName]. A value that is
// there already is not added again, so injecting twice is harmless. A fence that
// does not pass [Fence.Validate] is left out: the receiver finds it missing.
func Inject(ctx context.Context, c Carrier) {
	for f := range All(ctx) {
		if f.Validate() != nil {
			continue
		}
		if value := FormatHeader(f); !slices.Contains(c.Values(HeaderName), value) {
			c.Add(HeaderName, value)
		}
	}
}

// Extract returns ctx with the fences that c carries. Without any it returns ctx
// as it is and no error: whether one is needed is for the [Guard] to say. If any
// value is refused, none is taken, and the error is a [*MalformedError]; see
// [ParseHeader] for what is refused.
func Extract(ctx context.Context, c Carrier) (context.Context, error) {
	fences, err := ParseHeader(c.Values(HeaderName))
	if err != nil {
		return ctx, err
	}
	// Backwards, so that All yields them in the sender's order.
	for _, f := range slices.Backward(fences) {
		ctx = NewContext(ctx, f)
	}
	return ctx, nil
}
