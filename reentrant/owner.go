package reentrant

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/oklog/ulid/v2"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// Owner names one logical thread of control, across processes. The zero Owner stands for no owner.
type Owner ulid.ULID

// NewOwner returns a unique owner. All its 80 random bits come from crypto/rand: if two threads had the same owner,
// they would hold a lock at the same time.
func NewOwner() Owner { return Owner(ulid.MustNew(ulid.Now(), rand.Reader)) }

// ParseOwner parses the result of String: 26 characters of Crockford's base 32, in either case. Any other text, the
// zero Owner included, is a *rwlock.OptionError.
func ParseOwner(s string) (Owner, error) {
	id, err := ulid.ParseStrict(s)
	if err != nil || id.IsZero() {
		return Owner{}, &rwlock.OptionError{Option: "owner", Value: clip(s), Rule: "must be a ULID other than zero"}
	}
	return Owner(id), nil
}

// String returns the owner as a ULID of 26 characters, as Inspect shows it.
func (o Owner) String() string { return ulid.ULID(o).String() }

// clip quotes a text from outside the program, shortened to a length that suffices to recognise it.
func clip(s string) string {
	const most = 40
	if len(s) > most {
		return fmt.Sprintf("%q... (%d bytes)", s[:most], len(s))
	}
	return fmt.Sprintf("%q", s)
}

// identity is the owner in a context. It is stored where package fencing keeps owners. So the transports of package
// fencing send it on, and any later owner replaces it, even if another package sets that owner.
type identity struct {
	owner  Owner
	joins  bool   // the owner may have holds that other processes took
	string string // owner.String(), made once; empty for the zero Owner, which stands for no owner
}

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
	default: // it came with a call or a message from another process
		o, err := ParseOwner(owner.String())
		return newIdentity(o, true), err == nil
	}
}

// WithOwner returns ctx with a new owner, or ctx itself if it has an owner. Call it once, at the edge: at the entry of
// a request or the start of a job.
func WithOwner(ctx context.Context) context.Context {
	if _, ok := identityFrom(ctx); ok {
		return ctx
	}
	return with(ctx, NewOwner(), false)
}

// AsOwner returns ctx for work on behalf of an owner from another process. It replaces any owner of ctx. A context that
// fencing.Extract or a server's middleware has made from a call already has such an owner. The first acquisition of a
// lock under it joins the owner's hold on the masters; the package documentation describes the case of an owner without
// a hold. The zero Owner leaves the context without an owner.
func AsOwner(ctx context.Context, o Owner) context.Context { return with(ctx, o, true) }

// OwnerFrom returns the owner of ctx and whether there is one. fencing.Inject and the transports of httpfence and
// grpcfence send it together with the fence.
func OwnerFrom(ctx context.Context) (Owner, bool) {
	if id, ok := identityFrom(ctx); ok {
		return id.owner, true
	}
	return Owner{}, false
}

// Fork returns ctx with a new owner, for a goroutine that runs concurrently with its parent. The goroutine waits for
// the parent's locks as any other client does. If the old owner came from AsOwner, this does not apply to the new
// owner.
func Fork(ctx context.Context) context.Context { return with(ctx, NewOwner(), false) }
