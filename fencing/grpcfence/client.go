package grpcfence

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/seed74116694/fencelock/fencing"
)

// UnaryClient is a [grpc.UnaryClientInterceptor] that sends the fences and the owner of the call's context to every
// service of its connection. What a service would refuse, such as more fences than a message may have, is not sent: the
// error is that of [fencing.Inject], and its status is InvalidArgument.
func UnaryClient(
	ctx context.Context, method string, req, reply any,
	cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	ctx, err := outgoing(ctx)
	if err != nil {
		return err
	}
	return invoke(ctx, method, req, reply, cc, opts...)
}

// StreamClient is a [grpc.StreamClientInterceptor] that does the same with the stream's context, as its fences and its
// owner are when the stream begins.
func StreamClient(
	ctx context.Context, desc *grpc.StreamDesc,
	cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	ctx, err := outgoing(ctx)
	if err != nil {
		return nil, err
	}
	return open(ctx, desc, cc, method, opts...)
}

func outgoing(ctx context.Context) (context.Context, error) {
	md, ok := metadata.FromOutgoingContext(ctx) // a copy
	if !ok {
		md = metadata.MD{}
	}
	if err := fencing.Inject(ctx, fencing.MapCarrier(md)); err != nil {
		return nil, unsent{err}
	}
	if len(md) == 0 {
		return ctx, nil
	}
	return metadata.NewOutgoingContext(ctx, md), nil
}

// unsent is the error of a call that was not sent.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// GRPCStatus is what package status looks for.
func (u unsent) GRPCStatus() *status.Status { return status.New(codes.InvalidArgument, u.Error()) }
