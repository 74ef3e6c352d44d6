package fencing

import (
	"context"
	"time"
)

// Deadline returns until when the hold behind ctx's fence of resource is trusted, as its source says now. ok is false
// where ctx has no such fence, and where the source knows no deadline: a [Source] knows one if it has a method
// Deadline() time.Time, as a lease does. Each renewal of a lease moves it, so the context itself has none. It is the
// zero time once the hold has ended.
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
