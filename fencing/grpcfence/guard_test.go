package grpcfence_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/grpcfence"
)

func guarded(guard fencing.Guard, mode fencing.Mode) []grpc.ServerOption {
	need := func(_ context.Context, method string, req any) (grpcfence.Need, bool) {
		check, unary := req.(*health.HealthCheckRequest)
		if unary != (method == health.Health_Check_FullMethodName) {
			return grpcfence.Need{}, false // which lets the test's stale calls through
		}
		if unary {
			return grpcfence.Need{Resource: check.Service, Mode: mode}, true
		}
		return grpcfence.Need{Resource: "orders/42", Mode: mode}, true
	}
	return []grpc.ServerOption{
		grpc.UnaryInterceptor(grpcfence.UnaryServerGuard(guard, need)),
		grpc.StreamInterceptor(grpcfence.StreamServerGuard(guard, need)),
	}
}

func TestGuard(t *testing.T) {
	other := fencing.Fence{Resource: "stock/9", Token: 99, Mode: fencing.Write}
	const refused = codes.FailedPrecondition
	for name, tt := range map[string]struct {
		fences []fencing.Fence
		needs  fencing.Mode
		code   codes.Code
		want   error
	}{
		"current writer":      {[]fencing.Fence{fence(fencing.Write, 20)}, fencing.Write, codes.OK, nil},
		"current reader":      {[]fencing.Fence{fence(fencing.Read, 18)}, fencing.Read, codes.OK, nil},
		"writer that reads":   {[]fencing.Fence{fence(fencing.Write, 20)}, fencing.Read, codes.OK, nil},
		"several fences":      {[]fencing.Fence{other, fence(fencing.Write, 20)}, fencing.Write, codes.OK, nil},
		"stale writer":        {[]fencing.Fence{fence(fencing.Write, 18)}, fencing.Write, refused, fencing.ErrStale},
		"stale reader":        {[]fencing.Fence{fence(fencing.Read, 16)}, fencing.Read, refused, fencing.ErrStale},
		"reader that writes":  {[]fencing.Fence{fence(fencing.Read, 20)}, fencing.Write, refused, fencing.ErrMissing},
		"mode not said":       {[]fencing.Fence{fence(fencing.Read, 20)}, 0, refused, fencing.ErrMissing},
		"no fence":            {nil, fencing.Write, refused, fencing.ErrMissing},
		"another's fence":     {[]fencing.Fence{other}, fencing.Write, refused, fencing.ErrMissing},
		"a fence of no token": {[]fencing.Fence{fence(fencing.Write, 0)}, fencing.Write, refused, fencing.ErrMissing},
	} {
		for kind, call := range calls {
			t.Run(name+"/"+kind, func(t *testing.T) {
				var guard fencing.Watermark
				require.NoError(t, guard.Claim(fence(fencing.Write, 17)))
				require.NoError(t, guard.Claim(fence(fencing.Read, 19)))
				ran := false
				client := serve(t, &service{check: func(ctx context.Context) error {
					ran = true
					_, err := fencing.Require(ctx, "orders/42")
					return err
				}}, guarded(&guard, tt.needs)...)

				ctx := t.Context()
				for _, f := range tt.fences {
					ctx = fencing.NewContext(ctx, f)
				}
				err := call(ctx, client)
				require.Equal(t, tt.code, status.Code(err), "%v", err)
				require.Equal(t, tt.code == codes.OK, ran)
				if tt.want == nil {
					require.NoError(t, grpcfence.FromStatus(err))
					return
				}
				require.ErrorIs(t, grpcfence.FromStatus(err), tt.want)
			})
		}
	}
}

func TestGuardReturnsTheHandlersError(t *testing.T) {
	for kind, call := range calls {
		t.Run(kind, func(t *testing.T) {
			var guard fencing.Watermark
			var reply error
			client := serve(t, &service{check: func(context.Context) error { return reply }}, guarded(&guard, fencing.Write)...)
			ctx := fencing.NewContext(t.Context(), fence(fencing.Write, 20))

			reply = status.Error(codes.NotFound, "no such order")
			require.Equal(t, codes.NotFound, status.Code(call(ctx, client)))
			reply = errors.New("disk full")
			require.Equal(t, codes.Unknown, status.Code(call(ctx, client)))
			reply = nil
			require.NoError(t, call(ctx, client))
		})
	}
}

func TestGuardThatFailsAfterTheHandler(t *testing.T) {
	stale := &fencing.StaleError{Resource: "orders/42", Got: 20, Seen: 21}
	guard := guardFunc(func(ctx context.Context, _ fencing.Fence, access func(context.Context) error) error {
		require.NoError(t, access(ctx))
		return stale
	})
	client := serve(t, &service{check: func(context.Context) error { return nil }}, guarded(guard, fencing.Write)...)
	err := calls["unary"](fencing.NewContext(t.Context(), fence(fencing.Write, 20)), client)
	require.Equal(t, stale, grpcfence.FromStatus(err))
}

func TestUnguardedMethod(t *testing.T) {
	none := func(context.Context, string, any) (grpcfence.Need, bool) { return grpcfence.Need{}, false }
	client := serve(t, &service{check: func(context.Context) error { return nil }},
		grpc.UnaryInterceptor(grpcfence.UnaryServerGuard(nil, none)),
		grpc.StreamInterceptor(grpcfence.StreamServerGuard(nil, none)))
	for kind, call := range calls {
		require.NoError(t, call(t.Context(), client), kind)
	}
}

// What a handler leaves running hears that its access is over before a newer one can begin.
func TestTheContextEndsWithTheAccess(t *testing.T) {
	for kind, call := range calls {
		t.Run(kind, func(t *testing.T) {
			var inside context.Context
			guard := guardFunc(func(ctx context.Context, _ fencing.Fence, access func(context.Context) error) error {
				err := access(ctx)
				assert.ErrorIs(t, inside.Err(), context.Canceled)
				return err
			})
			client := serve(t, &service{check: func(ctx context.Context) error {
				inside = ctx
				return ctx.Err()
			}}, guarded(guard, fencing.Write)...)
			require.NoError(t, call(fencing.NewContext(t.Context(), fence(fencing.Write, 20)), client))
		})
	}
}

// guardFunc is a Guard of one function.
type guardFunc func(context.Context, fencing.Fence, func(context.Context) error) error

func (g guardFunc) Do(ctx context.Context, f fencing.Fence, access func(context.Context) error) error {
	return g(ctx, f, access)
}

// What is malformed, or from the far future, does not reach the handler and raises nothing.
func TestMalformedMetadata(t *testing.T) {
	var guard fencing.Watermark
	need := func(context.Context, string, any) (grpcfence.Need, bool) {
		return grpcfence.Need{Resource: "orders/42", Mode: fencing.Write}, true
	}
	limit := fencing.MaxAhead(time.Minute)
	for name, opts := range map[string][]grpc.ServerOption{
		"guard": {
			grpc.UnaryInterceptor(grpcfence.UnaryServerGuard(&guard, need, limit)),
			grpc.StreamInterceptor(grpcfence.StreamServerGuard(&guard, need, limit)),
		},
		"extract": {
			grpc.UnaryInterceptor(grpcfence.UnaryServerExtract(limit)),
			grpc.StreamInterceptor(grpcfence.StreamServerExtract(limit)),
		},
	} {
		for kind, call := range calls {
			t.Run(kind+"/"+name, func(t *testing.T) {
				ran := 0
				client := serve(t, &service{check: func(context.Context) error { ran++; return nil }}, opts...)
				future := fencing.NewContext(t.Context(), fence(fencing.Write, fencing.MaxToken))
				for _, ctx := range []context.Context{
					metadata.AppendToOutgoingContext(t.Context(), "fencing-token", "17"), future,
				} {
					err := call(ctx, client)
					require.Equal(t, codes.InvalidArgument, status.Code(err))
					require.ErrorIs(t, grpcfence.FromStatus(err), fencing.ErrMalformed)
				}
				require.Zero(t, ran)
				now := fencing.Token(time.Now().UnixMicro())
				ctx := fencing.NewContext(t.Context(), fence(fencing.Write, now))
				require.NoError(t, call(ctx, client), "the real holder is not kept out")
			})
		}
	}
}

// text is a fmt.Stringer of its own text.
type text string

func (t text) String() string { return string(t) }

func TestClientSendsFencesAndOwner(t *testing.T) {
	const owner = "01K9Z3NDEKTSV4RRFFQ69G5FAV"
	var guard fencing.Watermark
	for kind, call := range calls {
		t.Run(kind, func(t *testing.T) {
			var got metadata.MD
			client := serve(t, &service{check: func(ctx context.Context) error {
				got, _ = metadata.FromIncomingContext(ctx)
				assert.Equal(t, owner, fencing.OwnerFromContext(ctx).String())
				return nil
			}}, guarded(&guard, fencing.Write)...)
			ctx := metadata.AppendToOutgoingContext(fencing.NewOwnerContext(t.Context(), text(owner)), "x-own", "1")
			require.NoError(t, call(fencing.NewContext(ctx, fence(fencing.Write, 20)), client))
			require.Equal(t, []string{"1"}, got.Get("x-own"))
			require.Equal(t, []string{`"20";lock="orders/42";mode=write`}, got.Get(fencing.HeaderName))
			sent, _ := metadata.FromOutgoingContext(ctx)
			require.Empty(t, sent.Get(fencing.HeaderName), "the caller's metadata is not changed")
		})
	}
}

// A batch holds the locks of many orders, and calls the service about one of them.
func TestClientRefusesWhatTheServiceWould(t *testing.T) {
	var guard fencing.Watermark
	for kind, call := range calls {
		t.Run(kind, func(t *testing.T) {
			served := 0
			client := serve(t, &service{check: func(context.Context) error { served++; return nil }},
				guarded(&guard, fencing.Write)...)
			ctx := fencing.NewContext(t.Context(), fence(fencing.Write, 20))
			for i := range 63 {
				ctx = fencing.NewContext(ctx, fencing.Fence{Resource: fmt.Sprint(i), Token: 17, Mode: fencing.Write})
			}
			require.NoError(t, call(ctx, client), "64 fences")
			ctx = fencing.NewContext(ctx, fencing.Fence{Resource: "one more", Token: 17, Mode: fencing.Write})
			err := call(ctx, client)
			require.ErrorIs(t, err, fencing.ErrMalformed)
			require.ErrorContains(t, err, "65 fences")
			require.Equal(t, codes.InvalidArgument, status.Code(err))
			require.Equal(t, err, grpcfence.FromStatus(err))
			require.Equal(t, 1, served)
			require.NoError(t, call(fencing.Only(ctx, "orders/42"), client))
			require.Equal(t, 2, served)
		})
	}
}

func TestToStatus(t *testing.T) {
	stale := &fencing.StaleError{Resource: "orders/42", Got: 17, Seen: 18}
	lost := &fencing.LostError{Resource: "orders/42", Token: 17, Reason: "expired"}
	notFound := status.Error(codes.NotFound, "no")
	disk := errors.New("disk full")
	for name, tt := range map[string]struct {
		err  error
		code codes.Code
		want error // what the caller's error matches; nil where it stays as it is
	}{
		"stale":                 {stale, codes.FailedPrecondition, fencing.ErrStale},
		"wrapped stale":         {fmt.Errorf("update: %w", stale), codes.FailedPrecondition, fencing.ErrStale},
		"plainly stale":         {fencing.ErrStale, codes.FailedPrecondition, fencing.ErrStale},
		"lost":                  {lost, codes.FailedPrecondition, fencing.ErrLost},
		"stale, and an error":   {errors.Join(fencing.ErrStale, disk), codes.FailedPrecondition, fencing.ErrStale},
		"plainly lost":          {fencing.ErrLost, codes.FailedPrecondition, fencing.ErrLost},
		"lost after an error":   {errors.Join(disk, lost), codes.FailedPrecondition, fencing.ErrLost},
		"lost, so cancelled":    {errors.Join(context.Canceled, lost), codes.FailedPrecondition, fencing.ErrLost},
		"lost, so a call ended": {errors.Join(notFound, lost), codes.FailedPrecondition, fencing.ErrLost},
		"lost, so refused":      {errors.Join(lost, stale), codes.FailedPrecondition, fencing.ErrStale},
		"missing":               {fence(fencing.Read, 0).Validate(), codes.FailedPrecondition, fencing.ErrMissing},
		"malformed":             {fence(0, 1).Validate(), codes.InvalidArgument, fencing.ErrMalformed},
		"deadline":              {fmt.Errorf("waiting: %w", context.DeadlineExceeded), codes.DeadlineExceeded, nil},
		"cancelled":             {context.Canceled, codes.Canceled, nil},
		"a status":              {notFound, codes.NotFound, nil},
		"anything else":         {disk, codes.Unknown, nil},
		"nothing at all":        {nil, codes.OK, nil},
	} {
		t.Run(name, func(t *testing.T) {
			sent := grpcfence.ToStatus(tt.err)
			require.Equal(t, tt.code, status.Code(sent))
			require.Equal(t, sent, grpcfence.ToStatus(sent), "a status stays what it is")
			got := grpcfence.FromStatus(sent)
			if tt.want == nil {
				require.Equal(t, sent, got, "a call that failed stays one that failed")
				return
			}
			require.ErrorIs(t, got, tt.want)
			require.NotContains(t, got.Error(), `""`, "an error that names nothing says that the service reported it")
			require.NotContains(t, status.Convert(sent).Message(), "\n")
			passedOn := grpcfence.ToStatus(got)
			require.Equal(t, tt.code, status.Code(passedOn))
			require.ErrorIs(t, grpcfence.FromStatus(passedOn), tt.want, "over another hop")
		})
	}
	require.Equal(t, stale, grpcfence.FromStatus(grpcfence.ToStatus(stale)), "a hop loses nothing")
	require.Equal(t, lost, grpcfence.FromStatus(grpcfence.ToStatus(lost)))
}

func TestFromStatusIgnoresOtherDomains(t *testing.T) {
	st, err := status.New(codes.FailedPrecondition, "no").WithDetails(
		&errdetails.RetryInfo{},
		&errdetails.ErrorInfo{Reason: grpcfence.ReasonStale, Domain: "elsewhere"},
		&errdetails.ErrorInfo{Reason: "ANOTHER", Domain: grpcfence.Domain},
	)
	require.NoError(t, err)
	require.Equal(t, st.Err(), grpcfence.FromStatus(st.Err()))
	plain := errors.New("no status")
	require.Equal(t, plain, grpcfence.FromStatus(plain))
}

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
