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

// sendOnce sends an invoice under its lock. It may be called again if it returns an error.
func sendOnce(ctx context.Context, locker *rwlock.Locker, send func(context.Context) error) error {
	err := locker.Do(ctx, "invoice:7", send, rwlock.WithTTL(time.Second))
	if errors.Is(err, rwlock.ErrLost) && rwlock.Completed(err) {
		fmt.Println("the lock was lost, and the invoice is sent")
		return nil
	}
	return err
}

// The lock is lost while the work runs, and the work comes to its end. Without the question the caller would take the
// error for a failure, and send the invoice a second time.
func ExampleCompleted() {
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

	err = sendOnce(context.Background(), locker, func(ctx context.Context) error {
		server.FlushAll() // the server forgets its locks, as after a restart without persistence
		<-ctx.Done()      // the next renewal has noticed
		fmt.Println("sent")
		return nil
	})
	fmt.Println(err)
	// Output:
	// sent
	// the lock was lost, and the invoice is sent
	// <nil>
}
