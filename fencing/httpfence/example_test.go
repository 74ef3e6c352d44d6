package httpfence_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/httpfence"
)

// One hop: the client sends what its context carries, the service refuses what is
// stale.
func Example() {
	var guard fencing.Watermark
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", httpfence.Guarded(&guard,
		func(r *http.Request) string { return "orders/" + r.PathValue("id") },
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "shipped") })))
	service := httptest.NewServer(mux)
	defer service.Close()

	client := &http.Client{Transport: &httpfence.Transport{Base: service.Client().Transport}}
	ship := func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, "POST", service.URL+"/orders/42", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		fmt.Println(resp.Status)
		return httpfence.ResponseError(resp)
	}

	// With a real lock: ctx := lease.Context(parent).
	current := fencing.NewContext(context.Background(),
		fencing.Fence{Resource: "orders/42", Token: 18, Mode: fencing.Write})
	paused := fencing.NewContext(context.Background(),
		fencing.Fence{Resource: "orders/42", Token: 17, Mode: fencing.Write})

	fmt.Println(ship(current))
	fmt.Println(ship(paused))
	err := ship(context.Background())
	fmt.Println(errors.Is(err, fencing.ErrMissing))
	// Output:
	// 200 OK
	// <nil>
	// 412 Precondition Failed
	// fencing: stale token: "orders/42" has seen 18, got 17
	// 428 Precondition Required
	// true
}

// A token that no lock can have granted yet is refused before it raises a register.
func Example_maxAhead() {
	var guard fencing.Watermark
	resource := func(*http.Request) string { return "orders/42" }
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "shipped") })
	handler := httpfence.Guarded(&guard, resource, next, fencing.MaxAhead(time.Minute))

	for _, token := range []fencing.Token{fencing.MaxToken, fencing.Token(time.Now().UnixMicro())} {
		r := httptest.NewRequest("POST", "/orders/42", nil)
		r.Header.Set(fencing.HeaderName,
			fencing.FormatHeader(fencing.Fence{Resource: "orders/42", Token: token, Mode: fencing.Write}))
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Println(w.Code)
	}
	// Output:
	// 400
	// 200
}

// Two hops: the shop only passes the fence on, the warehouse checks it, and the
// refusal comes back the same way.
func Example_twoHops() {
	var guard fencing.Watermark
	warehouse := httptest.NewServer(httpfence.Guarded(&guard,
		func(*http.Request) string { return "orders/42" },
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "picked") })))
	defer warehouse.Close()

	post := func(ctx context.Context, url string) error {
		req, err := http.NewRequestWithContext(ctx, "POST", url, nil)
		if err != nil {
			return err
		}
		resp, err := (&http.Client{Transport: &httpfence.Transport{}}).Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return httpfence.ResponseError(resp)
	}
	shop := httptest.NewServer(httpfence.Extract(
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := post(r.Context(), warehouse.URL); err != nil {
				httpfence.WriteProblem(w, err)
			}
		})))
	defer shop.Close()

	for _, token := range []fencing.Token{18, 17} {
		ctx := fencing.NewContext(context.Background(),
			fencing.Fence{Resource: "orders/42", Token: token, Mode: fencing.Write})
		fmt.Println(post(ctx, shop.URL))
	}
	// Output:
	// <nil>
	// fencing: stale token: "orders/42" has seen 18, got 17
}
