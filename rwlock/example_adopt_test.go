package rwlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"

	"github.com/seed74116694/fencelock/rwlock"
)

// ship is the worker's side: message is a ticket that came by a queue, maybe more than once.
func ship(ctx context.Context, worker *rwlock.Locker, message []byte) error {
	var ticket rwlock.Ticket
	if err := json.Unmarshal(message, &ticket); err != nil {
		return err
	}
	lease, err := worker.Adopt(ctx, ticket)
	if errors.Is(err, rwlock.ErrTicket) { // too late, or another worker was first
		fmt.Println("not mine")
		return nil
	}
	if err != nil {
		return err
	}
	defer lease.Release(ctx)
	fmt.Println("shipping", lease.Name())
	return nil
}

// A producer takes the lock of an order and hands it to a worker by way of a queue. No other process has the lock in
// between.
func ExampleLocker_Adopt() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	producer, err := rwlock.Open(server.Addr())
	if err != nil {
		panic(err)
	}
	defer producer.Close()
	worker, err := rwlock.Open(server.Addr()) // of another process
	if err != nil {
		panic(err)
	}
	defer worker.Close()

	ctx := context.Background()
	lease, err := producer.Lock(ctx, "order:42")
	if err != nil {
		panic(err)
	}
	ticket, err := lease.Detach(ctx) // from here on the producer holds nothing
	if err != nil {
		panic(err)
	}
	message, err := json.Marshal(ticket)
	if err != nil {
		panic(err)
	}
	fmt.Println(ship(ctx, worker, message))
	fmt.Println(ship(ctx, worker, message)) // the queue delivers twice
	// Output:
	// shipping order:42
	// <nil>
	// not mine
	// <nil>
}
