package reentrant

import "context"

// identity is what a context says of its owner.
type identity struct {
	owner  Owner
	joins  bool   // the owner may have holds that other processes took
	string string // owner.String(), made once
}

type contextKey struct{}

func with(ctx context.Context, o Owner, joins bool) context.Context {
	return context.WithValue(ctx, contextKey{}, &identity{owner: o, joins: joins, string: o.String()})
}

func identityFrom(ctx context.Context) (*identity, bool) {
	id, _ := ctx.Value(contextKey{}).(*identity)
	return id, id != nil && id.owner != Owner{}
}

// WithOwner returns ctx with a new owner, or ctx itself if it has one. Call it once, at the edge: where a request
// comes in, where a job begins.
func WithOwner(ctx context.Context) context.Context {
	if _, ok := identityFrom(ctx); ok {
		return ctx
	}
	return with(ctx, NewOwner(), false)
}

// AsOwner returns ctx for work on behalf of an owner that comes from another process, in the place of any owner that
// ctx has. The first acquisition of a lock under it joins what the owner holds on the masters; see the package's
// documentation for an owner that holds nothing. The zero Owner leaves the context without an owner.
func AsOwner(ctx context.Context, o Owner) context.Context { return with(ctx, o, true) }

// OwnerFrom returns the owner of ctx, to be sent to another process as text, and whether there is one.
func OwnerFrom(ctx context.Context) (Owner, bool) {
	if id, ok := identityFrom(ctx); ok {
		return id.owner, true
	}
	return Owner{}, false
}

// Fork returns ctx with a new owner, for a goroutine that runs beside its parent: it waits for the parent's locks as
// anybody does. What AsOwner said of the old owner does not apply to the new one.
func Fork(ctx context.Context) context.Context { return with(ctx, NewOwner(), false) }
