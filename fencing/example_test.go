package fencing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"

	"github.com/seed74116694/fencelock/fencing"
)

// A holder that was paused past the end of its lease writes late, and is refused.
func Example() {
	var (
		guard   fencing.Watermark
		balance int
	)
	deposit := func(f fencing.Fence, amount int) error {
		if f.Mode != fencing.Write { // Do would run it beside other readers
			return fmt.Errorf("%w for writing: %v", fencing.ErrMissing, f)
		}
		return guard.Do(context.Background(), f, func(context.Context) error {
			balance += amount
			return nil
		})
	}
	paused := fencing.Fence{Resource: "account/7", Token: 33, Mode: fencing.Write}
	current := fencing.Fence{Resource: "account/7", Token: 34, Mode: fencing.Write}

	fmt.Println(deposit(current, 100))
	fmt.Println(deposit(paused, 1))
	reader := fencing.Fence{Resource: "account/7", Token: 35, Mode: fencing.Read}
	fmt.Println(deposit(reader, 1))
	fmt.Println(balance)
	// Output:
	// <nil>
	// fencing: stale token: "account/7" has seen 34, got 33
	// fencing: no token for writing: read "account/7" token 35
	// 100
}

func ExampleToken() {
	token := fencing.Token(1763712345678901)
	text, _ := json.Marshal(token)
	fmt.Println(token, token.Padded(), string(text))
	// Output:
	// 1763712345678901 00001763712345678901 "1763712345678901"
}

func ExampleParseToken() {
	token, err := fencing.ParseToken("17")
	fmt.Println(token, err)
	_, err = fencing.ParseToken("-17")
	fmt.Println(err, errors.Is(err, fencing.ErrMalformed))
	// Output:
	// 17 <nil>
	// fencing: malformed token "-17": only decimal digits are allowed true
}

func ExampleMode() {
	fmt.Println(fencing.Read, fencing.Write)
	// Output: read write
}

func ExampleFence() {
	f := fencing.Fence{Resource: "orders/42", Token: 17, Mode: fencing.Write}
	fmt.Println(f, f.Validate())
	f.Token = 0
	fmt.Println(f.Validate())
	// Output:
	// write "orders/42" token 17 <nil>
	// fencing: no token for "orders/42"
}

// lease.Context of package rwlock does this for its lease.
func ExampleNewContext() {
	ctx := fencing.NewContext(context.Background(),
		fencing.Fence{Resource: "orders/42", Token: 17, Mode: fencing.Write})

	f, ok := fencing.FromContext(ctx, "orders/42")
	fmt.Println(f, ok)
	_, err := fencing.Require(ctx, "orders/43")
	fmt.Println(err)
	// Output:
	// write "orders/42" token 17 true
	// fencing: no token for "orders/43"; the context has that of "orders/42"
}

func ExampleAll() {
	ctx := fencing.NewContext(context.Background(),
		fencing.Fence{Resource: "orders/42", Token: 17, Mode: fencing.Write})
	ctx = fencing.NewContext(ctx,
		fencing.Fence{Resource: "stock/9", Token: 3, Mode: fencing.Read})
	for f := range fencing.All(ctx) {
		fmt.Println(f)
	}
	// Output:
	// read "stock/9" token 3
	// write "orders/42" token 17
}

// A batch holds the locks of many accounts, and calls a service about one of them.
func ExampleOnly() {
	batch := context.Background()
	for account := range 100 {
		batch = fencing.NewContext(batch,
			fencing.Fence{Resource: fmt.Sprint("accounts/", account), Token: 17, Mode: fencing.Write})
	}
	err := fencing.Inject(batch, make(http.Header))
	fmt.Println(errors.Is(err, fencing.ErrMalformed))

	header := make(http.Header)
	err = fencing.Inject(fencing.Only(batch, "accounts/3"), header)
	fmt.Println(header, err)
	// Output:
	// true
	// map[Fencing-Token:["17";lock="accounts/3";mode=write]] <nil>
}

// hold stands for a lease: its fence changes when it is upgraded.
type hold struct{ fence fencing.Fence }

func (h *hold) Fence() fencing.Fence { return h.fence }

func ExampleNewSourceContext() {
	h := &hold{fencing.Fence{Resource: "orders/42", Token: 17, Mode: fencing.Read}}
	ctx := fencing.NewSourceContext(context.Background(), h)

	h.fence = fencing.Fence{Resource: "orders/42", Token: 18, Mode: fencing.Write} // upgraded
	f, _ := fencing.FromContext(ctx, "orders/42")
	fmt.Println(f)
	// Output: write "orders/42" token 18
}

// Package httpfence does both for net/http.
func ExampleInject() {
	ctx := fencing.NewContext(context.Background(),
		fencing.Fence{Resource: "orders/42", Token: 17, Mode: fencing.Write})

	header := make(http.Header) // of a request that is sent
	if err := fencing.Inject(ctx, header); err != nil {
		log.Fatal(err)
	}
	fmt.Println(header)

	received, err := fencing.Extract(context.Background(), header)
	f, ok := fencing.FromContext(received, "orders/42")
	fmt.Println(f, ok, err)
	// Output:
	// map[Fencing-Token:["17";lock="orders/42";mode=write]]
	// write "orders/42" token 17 true <nil>
}

// Package grpcfence does this with a call's metadata.
func ExampleMapCarrier() {
	metadata := map[string][]string{}
	ctx := fencing.NewContext(context.Background(),
		fencing.Fence{Resource: "orders/42", Token: 17, Mode: fencing.Write})
	if err := fencing.Inject(ctx, fencing.MapCarrier(metadata)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(metadata)
	// Output: map[fencing-token:["17";lock="orders/42";mode=write]]
}

func ExampleExtract() {
	hostile := http.Header{"Fencing-Token": {`"99999999999999999";lock="orders/42";mode=write`}}
	_, err := fencing.Extract(context.Background(), hostile)
	fmt.Println(err)
	// Output: fencing: malformed token "99999999999999999": the limit is 9007199254740991
}

func ExampleRegisters() {
	var seen fencing.Registers
	seen = seen.Raise(fencing.Fence{Resource: "orders/42", Token: 17, Mode: fencing.Write})
	seen = seen.Raise(fencing.Fence{Resource: "orders/42", Token: 19, Mode: fencing.Read})
	fmt.Println(seen.Check(fencing.Fence{Resource: "orders/42", Token: 18, Mode: fencing.Read}))
	fmt.Println(seen.Check(fencing.Fence{Resource: "orders/42", Token: 18, Mode: fencing.Write}))
	// Output:
	// <nil>
	// fencing: stale token: "orders/42" has seen 19, got 18
}

// A holder whose first access is a read claims first, or a write from before may
// land between its read and its write.
func ExampleWatermark_Claim() {
	var guard fencing.Watermark
	ctx := context.Background()
	write := func(context.Context) error { return nil }

	fmt.Println(guard.Claim(fencing.Fence{Resource: "orders/42", Token: 18, Mode: fencing.Write}))
	fmt.Println(guard.Do(ctx, fencing.Fence{Resource: "orders/42", Token: 17, Mode: fencing.Write}, write))
	fmt.Println(guard.Seen("orders/42"))
	// Output:
	// <nil>
	// fencing: stale token: "orders/42" has seen 18, got 17
	// 0 18
}

// A cache is filled with what a reader read; once a newer write has been seen,
// that is out of date.
func ExampleWatermark_Derive() {
	var guard fencing.Watermark
	ctx := context.Background()
	cache := map[string]string{}
	fill := func(token fencing.Token, value string) error {
		f := fencing.Fence{Resource: "orders/42", Token: token, Mode: fencing.Read}
		return guard.Derive(ctx, f, func(context.Context) error {
			cache["orders/42"] = value
			return nil
		})
	}
	fmt.Println(fill(17, "paid"), cache)
	_ = guard.Do(ctx, fencing.Fence{Resource: "orders/42", Token: 18, Mode: fencing.Write}, func(context.Context) error {
		delete(cache, "orders/42")
		return nil
	})
	fmt.Println(fill(17, "paid"), cache)
	fmt.Println(fill(19, "shipped"), cache)
	// Output:
	// <nil> map[orders/42:paid]
	// fencing: stale token: "orders/42" has seen 18, got 17 map[]
	// <nil> map[orders/42:shipped]
}
