package grpcfence_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/grpcfence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fence(mode fencing.Mode, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: "orders/42", Token: token, Mode: mode}
}

// service answers gRPC's health service, which has a unary and a streaming
// method, with what its fields do.
type service struct {
	health.UnimplementedHealthServer
	check func(context.Context) error
}

func (s *service) Check(ctx context.Context, _ *health.HealthCheckRequest) (*health.HealthCheckResponse, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	return &health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING}, nil
}

func (s *service) Watch(
	_ *health.HealthCheckRequest, stream grpc.ServerStreamingServer[health.HealthCheckResponse],
) error {
	if err := s.check(stream.Context()); err != nil {
		return err
	}
	return stream.Send(&health.HealthCheckResponse{Status: health.HealthCheckResponse_SERVING})
}

// serve runs the service in memory and returns a client that sends fences.
func serve(t *testing.T, s *service, opts ...grpc.ServerOption) health.HealthClient {
	t.Helper()
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer(opts...)
	health.RegisterHealthServer(server, s)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-ended)
	})
	conn, err := grpc.NewClient("passthrough:///memory",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
		grpc.WithUnaryInterceptor(grpcfence.UnaryClient),
		grpc.WithStreamInterceptor(grpcfence.StreamClient),
	)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return health.NewHealthClient(conn)
}

// calls are the two ways to reach service.check.
var calls = map[string]func(context.Context, health.HealthClient) error{
	"unary": func(ctx context.Context, client health.HealthClient) error {
		_, err := client.Check(ctx, &health.HealthCheckRequest{Service: "orders/42"})
		return err
	},
	"stream": func(ctx context.Context, client health.HealthClient) error {
		stream, err := client.Watch(ctx, &health.HealthCheckRequest{Service: "orders/42"})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	},
}
