package grpcfence_test

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	pb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/grpcfence"
)

// One hop: the connection sends what the call's context carries, the server
// refuses what is stale. gRPC's health service stands for a service of your own.
func Example() {
	var guard fencing.Watermark
	need := func(_ context.Context, _ string, req any) (grpcfence.Need, bool) {
		order := req.(*pb.HealthCheckRequest).GetService()
		return grpcfence.Need{Resource: "orders/" + order, Mode: fencing.Write}, true
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(grpcfence.UnaryServerGuard(&guard, need)))
	service := health.NewServer()
	service.SetServingStatus("42", pb.HealthCheckResponse_SERVING)
	pb.RegisterHealthServer(server, service)
	listener := bufconn.Listen(1 << 16)
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	conn, err := grpc.NewClient("passthrough:///orders",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithUnaryInterceptor(grpcfence.UnaryClient))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	ship := func(ctx context.Context) error {
		_, err := pb.NewHealthClient(conn).Check(ctx, &pb.HealthCheckRequest{Service: "42"})
		return err
	}

	// With a real lock: ctx := lease.Context(parent).
	current := fencing.NewContext(context.Background(),
		fencing.Fence{Resource: "orders/42", Token: 18, Mode: fencing.Write})
	paused := fencing.NewContext(context.Background(),
		fencing.Fence{Resource: "orders/42", Token: 17, Mode: fencing.Write})

	fmt.Println(ship(current))
	fmt.Println(grpcfence.FromStatus(ship(paused)))
	fmt.Println(errors.Is(grpcfence.FromStatus(ship(context.Background())), fencing.ErrMissing))
	// Output:
	// <nil>
	// fencing: stale token: "orders/42" has seen 18, got 17
	// true
}
