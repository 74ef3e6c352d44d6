package reentrant_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/httpfence"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// service is a process that is called over HTTP: nothing but the header reaches it.
type service struct{ handler http.Handler }

func (s service) RoundTrip(r *http.Request) (*http.Response, error) {
	// Who does not join waits for itself: that must end, as a failure.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	received := httptest.NewRequestWithContext(ctx, r.Method, r.URL.String(), nil)
	received.Header = r.Header.Clone()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, received)
	return w.Result(), nil
}

// call is the caller's whole part.
func (s service) call(ctx context.Context) error {
	client := &http.Client{Transport: &httpfence.Transport{Base: s}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://service.test/orders", nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	return httpfence.ResponseError(response)
}

// locking is a service that takes the lock for each call. No line of it speaks of owners.
func locking(p *process, work func(ctx context.Context) error) service {
	return service{httpfence.Extract(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.Do(r.Context(), "orders", work); err != nil {
			httpfence.WriteProblem(w, err)
		}
	}))}
}

func TestTheOwnerTravelsOverHTTP(t *testing.T) {
	everywhere(t, func(w *world) {
		first, second := start(w), start(w)
		ctx, owner := owned(w)
		outer := must(w)(first.Lock(ctx, "orders"))
		there := locking(second, func(ctx context.Context) error {
			require.Equal(w, outer.Token(), expect.NoError(fencing.Require(ctx, "orders")).In(w).Token)
			acting, _ := reentrant.OwnerFrom(ctx)
			require.Equal(w, owner, acting)
			require.Equal(w, 2, second.inspect("orders").Holders[0].Count, "joined, not waiting for itself")
			return nil
		})
		require.NoError(w, there.call(outer.Context(ctx)))
		require.Equal(w, 1, second.inspect("orders").Holders[0].Count)

		stranger, _ := owned(w)
		claims := fencing.NewContext(stranger, outer.Lease().Fence())
		require.ErrorIs(w, there.call(claims), rwlock.ErrLost, "who claims the fence of another owner's section")
		require.NoError(w, outer.Release(ctx))
	})
}

// An owner that holds nothing there takes further locks in the ordinary way.
func TestTheOwnerTravelsOverHTTPWithoutAFence(t *testing.T) {
	everywhere(t, func(w *world) {
		p := start(w)
		ctx, owner := owned(w)
		require.NoError(w, locking(p, func(context.Context) error {
			require.Equal(w, owner.String(), p.inspect("orders").Holders[0].Owner)
			return nil
		}).call(ctx))
	})
}

func TestALossIsToldOverHTTP(t *testing.T) {
	asOwner(t, everywhere, func(w *world, first *process, ctx context.Context) {
		second := start(w)
		outer := must(w)(first.Lock(ctx, "orders"))
		work := outer.Context(ctx)
		require.NoError(w, outer.Release(ctx))

		section := context.WithoutCancel(work)
		err := locking(second, func(context.Context) error { return errors.New("must not run") }).call(section)
		require.ErrorIs(w, err, rwlock.ErrLost)
		require.Equal(w, &fencing.LostError{Resource: "orders", Token: outer.Token(), Reason: string(rwlock.ReasonGone)}, err)
	})
}

func TestNestingSendsNoCommandAtAll(t *testing.T) {
	asOwner(t, inFakeTime, func(w *world, p *process, ctx context.Context) {
		outer := must(w)(p.Lock(ctx, "a"))
		w.Settle()
		before := w.Mini.AllCalls()
		for range 1000 {
			nested := must(w)(p.Lock(ctx, "a"))
			require.NoError(w, nested.Release(ctx))
		}
		require.Equal(w, before, w.Mini.AllCalls())
		require.NoError(w, outer.Release(ctx))
	})
	w := testkit.Start(t, 1)
	l := start(w, rwlock.WithoutRenewal())
	ctx, _ := owned(w)
	outer := must(w)(l.Lock(ctx, "a"))
	w.Eventually("the server was asked for its eviction policy", func() bool { return w.Server.Stats()["info"].Calls > 0 })
	w.Server.ResetStats()
	for range 1000 {
		require.NoError(t, must(w)(l.Lock(ctx, "a")).Release(ctx))
	}
	stats := w.Server.Stats()
	delete(stats, "ping") // the client's own, once a second
	require.Empty(t, stats)
	require.NoError(t, outer.Release(ctx))
}

// The Hold is all that a nested acquisition makes.
func TestNestingAllocatesTheHoldOnly(t *testing.T) {
	l, ctx := nestedIn(t, "a")
	require.LessOrEqual(t, testing.AllocsPerRun(1000, func() { lockAndRelease(t, l, ctx, "a") }), 1.0)
}

// nestedIn returns a locker and the context of a section of the lock, which lasts as long as the test.
func nestedIn(t testing.TB, name string) (*reentrant.Locker, context.Context) {
	t.Helper()
	server := miniredis.RunT(t)
	l := reentrant.New(testkit.Dial(t, server.Addr(), testredis.ClientOption(server.Addr())))
	ctx := reentrant.WithOwner(t.Context())
	outer := expect.NoError(l.Lock(ctx, name)).In(t)
	return l, outer.Context(ctx)
}

func lockAndRelease(t testing.TB, l *reentrant.Locker, ctx context.Context, name string) {
	h, err := l.Lock(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Release(ctx); err != nil {
		t.Fatal(err)
	}
}
