package reentrant_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/httpfence"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// service is a process that is called over HTTP: nothing but the header reaches it.
type service struct{ handler http.Handler }

func (s service) RoundTrip(r *http.Request) (*http.Response, error) {
	// Who does not join waits for itself: that must end, as a failure.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
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
			fence, err := fencing.Require(ctx, "orders")
			require.NoError(w, err)
			require.Equal(w, outer.Token(), fence.Token)
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
	everywhere(t, func(w *world) {
		first, second := start(w), start(w)
		ctx, _ := owned(w)
		outer := must(w)(first.Lock(ctx, "orders"))
		work := outer.Context(ctx)
		require.NoError(w, outer.Release(ctx))

		section := context.WithoutCancel(work)
		err := locking(second, func(context.Context) error { return errors.New("must not run") }).call(section)
		require.ErrorIs(w, err, rwlock.ErrLost)
		require.Equal(w, &fencing.LostError{
			Resource: "orders", Token: outer.Token(), Reason: string(rwlock.ReasonGone),
		}, err)
	})
}
