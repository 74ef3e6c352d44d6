package grpcfence

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	"github.com/seed74116694/fencelock/fencing"
)

// Need is the resource that a call accesses and the mode of the access: the call must carry a fence of this resource,
// and for [fencing.Write] the fence of a write lock. A writer's fence permits reading too.
type Need struct {
	Resource string
	Mode     fencing.Mode
}

// NeedFunc returns the need of a call, or false if the call needs nothing and runs unguarded. method is its full name,
// such as "/shop.Orders/Ship"; req is its request, nil for a stream, which has none when it begins.
type NeedFunc func(ctx context.Context, method string, req any) (Need, bool)

// UnaryServerGuard returns an interceptor that runs the handler inside guard.Do under the call's fence, with all its
// fences and its owner in the context; opts limit what is accepted from the metadata. A call that the guard refuses
// does not reach the handler; errors are converted with [ToStatus]. The response is sent after guard.Do has returned
// nil.
//
// The access is over when the handler returns, and its context ends then. What is left running is not guarded any more:
// an interceptor that returns before its handler, such as one for a timeout, belongs around the guard.
func UnaryServerGuard(
	guard fencing.Guard, need NeedFunc, opts ...fencing.ExtractOption,
) grpc.UnaryServerInterceptor {
	extract := UnaryServerExtract(opts...)
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		var resp any
		guarded := func(ctx context.Context, req any) (any, error) {
			err := run(ctx, guard, need, info.FullMethod, req, func(ctx context.Context) (err error) {
				resp, err = handle(ctx, req)
				return err
			})
			if err != nil {
				return nil, err
			}
			return resp, nil
		}
		return extract(ctx, req, info, guarded)
	}
}

// StreamServerGuard is [UnaryServerGuard] for streams. The whole stream is one access: while it lasts, guard keeps
// conflicting accesses waiting, and the client receives messages before guard.Do has returned. For a long stream,
// prefer [StreamServerExtract] and a check for each message.
func StreamServerGuard(
	guard fencing.Guard, need NeedFunc, opts ...fencing.ExtractOption,
) grpc.StreamServerInterceptor {
	extract := StreamServerExtract(opts...)
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		guarded := func(srv any, stream grpc.ServerStream) error {
			return run(stream.Context(), guard, need, info.FullMethod, nil, func(ctx context.Context) error {
				return handle(srv, &streamWith{stream, ctx})
			})
		}
		return extract(srv, stream, info, guarded)
	}
}

func run(
	ctx context.Context, guard fencing.Guard, need NeedFunc,
	method string, req any, access func(context.Context) error,
) error {
	n, needed := need(ctx, method, req)
	if !needed {
		return access(ctx)
	}
	f, err := fencing.Require(ctx, n.Resource)
	if err != nil {
		return err
	}
	if n.Mode != fencing.Read && f.Mode != fencing.Write {
		return fmt.Errorf("%w for writing %q: %s needs more than a read lock's", fencing.ErrMissing, n.Resource, method)
	}
	return guard.Do(ctx, f, func(ctx context.Context) error {
		ctx, end := context.WithCancel(ctx)
		defer end() // before the guard lets a newer access begin
		return access(ctx)
	})
}
