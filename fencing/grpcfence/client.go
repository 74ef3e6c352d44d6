package grpcfence

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/seed74116694/fencelock/fencing"
)

// UnaryClient is a [grpc.UnaryClientInterceptor] that sends the fences and the owner of the call's context to every
// service of its connection.
func UnaryClient(
	ctx context.Context, method string, req, reply any,
	cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	return invoke(outgoing(ctx), method, req, reply, cc, opts...)
}

// StreamClient is a [grpc.StreamClientInterceptor] that sends the fences and the owner of the stream's context, as they
// are when the stream begins.
func StreamClient(
	ctx context.Context, desc *grpc.StreamDesc,
	cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return open(outgoing(ctx), desc, cc, method, opts...)
}

func outgoing(ctx context.Context) context.Context {
	md, ok := metadata.FromOutgoingContext(ctx) // a copy
	if !ok {
		md = metadata.MD{}
	}
	fencing.Inject(ctx, fencing.MapCarrier(md))
	if len(md) == 0 {
		return ctx
	}
	return metadata.NewOutgoingContext(ctx, md)
}
