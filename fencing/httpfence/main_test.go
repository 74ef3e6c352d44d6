package httpfence_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fence(mode fencing.Mode, resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: mode}
}

// request has the fences in its header, as if it had been received.
func request(method, target string, fences ...fencing.Fence) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	for _, f := range fences {
		r.Header.Add(fencing.HeaderName, fencing.FormatHeader(f))
	}
	return r
}

// guardFunc is a Guard of one function.
type guardFunc func(context.Context, fencing.Fence, func(context.Context) error) error

func (g guardFunc) Do(ctx context.Context, f fencing.Fence, access func(context.Context) error) error {
	return g(ctx, f, access)
}
