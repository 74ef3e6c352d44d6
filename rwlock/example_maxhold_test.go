package rwlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed74116694/fencelock/rwlock"
)

// hang is work that never ends by itself.
func hang(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// A lease is renewed until its release, so work that hangs keeps its lock for ever. WithMaxHold bounds that.
func ExampleWithMaxHold() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	locker, err := rwlock.Open(server.Addr(), rwlock.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		panic(err)
	}
	defer locker.Close()

	ctx := context.Background()
	err = locker.Do(ctx, "import", hang, rwlock.WithMaxHold(200*time.Millisecond))
	lost, ok := errors.AsType[*rwlock.LostError](err)
	fmt.Println(ok, lost.Reason == rwlock.ReasonMaxHold)
	fmt.Println(locker.Do(ctx, "import", func(context.Context) error {
		fmt.Println("the next one is in")
		return nil
	}))
	// Output:
	// true true
	// the next one is in
	// <nil>
}
