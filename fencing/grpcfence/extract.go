package grpcfence

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/seed74116694/fencelock/fencing"
)

// UnaryServerExtract returns an interceptor that runs the handler with the call's fences and owner in its context, and
// converts its error with [ToStatus]. A call without any fence passes, because the storage decides whether a fence is
// required; a call with malformed metadata, or with metadata that breaks a limit of opts, is refused.
func UnaryServerExtract(opts ...fencing.ExtractOption) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		ctx, err := incoming(ctx, opts)
		if err != nil {
			return nil, ToStatus(err)
		}
		resp, err := handle(ctx, req)
		return resp, ToStatus(err)
	}
}

// StreamServerExtract is [UnaryServerExtract] for streams.
func StreamServerExtract(opts ...fencing.ExtractOption) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		ctx, err := incoming(stream.Context(), opts)
		if err != nil {
			return ToStatus(err)
		}
		return ToStatus(handle(srv, &streamWith{stream, ctx}))
	}
}

func incoming(ctx context.Context, opts []fencing.ExtractOption) (context.Context, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	return fencing.Extract(ctx, fencing.MapCarrier(md), opts...)
}

// streamWith is a stream with another context.
type streamWith struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *streamWith) Context() context.Context { return s.ctx }
