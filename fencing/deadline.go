package fencing

import (
	"context"
	"time"
)

// Deadline returns the time until which the hold of ctx's fence of resource is trusted, as its source reports it now.
// ok is false if ctx has no such fence, or if the source knows no deadline: a [Source] knows one if it has a method
// Deadline() time.Time, as a lease does. Each renewal of a lease moves its deadline, so the context itself has none.
// The deadline is the zero time after the hold has ended.
func Deadline(ctx context.Context, resource string) (deadline time.Time, ok bool) {
	for l := innermost(ctx); l != nil; l = l.outer {
		if l.resource == resource {
			dated, ok := l.source.(interface{ Deadline() time.Time })
			if !ok {
				return time.Time{}, false
			}
			return dated.Deadline(), true
		}
	}
	return time.Time{}, false
}
