package reentrant

import (
	"context"

	"github.com/seed74116694/fencelock/fencing"
)

// identity is what a context says of its owner. It is kept where package fencing keeps owners, so that its transports
// send it on, and a later owner replaces it whoever sets that.
type identity struct {
	owner  Owner
	joins  bool   // the owner may have holds that other processes took
	string string // owner.String(), made once; empty for the zero Owner, which is nobody's
}

// String returns what the transports send.
func (id *identity) String() string { return id.string }

func newIdentity(o Owner, joins bool) *identity {
	id := &identity{owner: o, joins: joins}
	if o != (Owner{}) {
		id.string = o.String()
	}
	return id
}

func with(ctx context.Context, o Owner, joins bool) context.Context {
	return fencing.NewOwnerContext(ctx, newIdentity(o, joins))
}

func identityFrom(ctx context.Context) (*identity, bool) {
	switch owner := fencing.OwnerFromContext(ctx).(type) {
	case nil:
		return nil, false
	case *identity:
		return owner, owner.owner != Owner{}
	default: // came with a call or a message: it is another process's
		o, err := ParseOwner(owner.String())
		return newIdentity(o, true), err == nil
	}
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
// ctx has. A context that fencing.Extract or a server's middleware has made of a call is one already. The first
// acquisition of a lock under it joins what the owner holds on the masters; see the package's documentation for an
// owner that holds nothing. The zero Owner leaves the context without an owner.
func AsOwner(ctx context.Context, o Owner) context.Context { return with(ctx, o, true) }

// OwnerFrom returns the owner of ctx and whether there is one. fencing.Inject and the transports of httpfence and
// grpcfence send it beside the fence.
func OwnerFrom(ctx context.Context) (Owner, bool) {
	if id, ok := identityFrom(ctx); ok {
		return id.owner, true
	}
	return Owner{}, false
}

// Fork returns ctx with a new owner, for a goroutine that runs beside its parent: it waits for the parent's locks as
// anybody does. What AsOwner said of the old owner does not apply to the new one.
func Fork(ctx context.Context) context.Context { return with(ctx, NewOwner(), false) }
