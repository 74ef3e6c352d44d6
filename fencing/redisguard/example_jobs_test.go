package redisguard_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/rwlock"
)

// jobs is a queue of orders. The producer of an order has its lock, and the worker goes on with it.
type jobs struct {
	locker  *rwlock.Locker
	client  rueidis.Client
	queue   string        // key of the list
	inQueue time.Duration // for how long an order keeps its lock while it waits
}

// job is a message of the queue.
type job struct {
	Order  string
	Ticket rwlock.Ticket
}

// produce prepares an order under its lock, and leaves the lock to the worker that takes the order from the queue. If
// the process dies on its way, the lock is free after its TTL, and another call begins again.
func (j jobs) produce(ctx context.Context, order string, prepare func(context.Context) error) error {
	lease, err := j.locker.Lock(ctx, order)
	if err != nil {
		return err
	}
	defer func() { _ = lease.Release(ctx) }() // where it was not detached
	if err := prepare(lease.Context(ctx)); err != nil {
		return err
	}
	ticket, err := lease.Detach(ctx, rwlock.WithTTL(j.inQueue))
	if err != nil {
		return err
	}
	message, err := json.Marshal(job{order, ticket})
	if err != nil {
		return err
	}
	return j.client.Do(ctx, j.client.B().Lpush().Key(j.queue).Element(string(message)).Build()).Error()
}

// work goes on with the order of a message. The queue delivers the message again if the process dies. By then the
// ticket may have been used, or have run out: the lock is taken anew, and ship looks how far the order has come.
func (j jobs) work(ctx context.Context, message string, ship func(ctx context.Context, order string) error) error {
	var m job
	if err := json.Unmarshal([]byte(message), &m); err != nil {
		return err
	}
	lease, err := j.locker.Adopt(ctx, m.Ticket)
	if err != nil && ctx.Err() == nil {
		if !errors.Is(err, rwlock.ErrTicket) && !errors.Is(err, rwlock.ErrNotAcquired) && !rwlock.Indeterminate(err) {
			return err
		}
		lease, err = j.locker.Lock(ctx, m.Order)
	}
	if err != nil {
		return err
	}
	defer func() { _ = lease.Release(ctx) }()
	return ship(lease.Context(ctx), m.Order)
}

// An order is prepared by one process and shipped by another, and no other process has its lock in between.
func Example_jobs() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true,
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()
	locker, err := rwlock.New(client)
	if err != nil {
		panic(err)
	}
	defer func() { _ = locker.Close() }()
	ctx, j := context.Background(), jobs{locker, client, "jobs", time.Minute}

	err = j.produce(ctx, "order/42", func(context.Context) error {
		fmt.Println("prepared")
		return nil
	})
	if err != nil {
		panic(err)
	}
	_, err = locker.TryLock(ctx, "order/42")
	fmt.Println("another process gets the lock:", err == nil)

	message, err := client.Do(ctx, client.B().Rpop().Key("jobs").Build()).ToString()
	if err != nil {
		panic(err)
	}
	err = j.work(ctx, message, func(ctx context.Context, order string) error { // in the worker
		fmt.Println(order, "is shipped, lock held:", ctx.Err() == nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// prepared
	// another process gets the lock: false
	// order/42 is shipped, lock held: true
	// <nil>
}
