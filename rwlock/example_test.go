package rwlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// embedded returns a locker over a Redis inside this process, for the examples; a program dials its own.
func embedded(opts ...rwlock.Option) (locker *rwlock.Locker, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{})
	if err != nil {
		panic(err)
	}
	silent := rwlock.WithLogger(slog.New(slog.DiscardHandler))
	locker, err = rwlock.New(client, append([]rwlock.Option{silent}, opts...)...)
	if err != nil {
		panic(err)
	}
	return locker, func() {
		_ = locker.Close()
		client.Close()
		server.Close()
	}
}

func ExampleLocker_Do() {
	locker, stop := embedded()
	defer stop()

	err := locker.Do(context.Background(), "invoice:7", func(ctx context.Context) error {
		// Nobody else is in here. ctx ends should the lock be lost while this runs.
		fmt.Println("sending invoice 7, lock held:", ctx.Err() == nil)
		return nil
	})
	fmt.Println(err)
	// Output:
	// sending invoice 7, lock held: true
	// <nil>
}

// A transfer writes two accounts at a rate that it only reads, with the fences of all three. Another call may name the
// accounts the other way round: neither waits for the other with one account in its hand. Both read the rate at once.
func ExampleLocker_DoAll() {
	locker, stop := embedded()
	defer stop()

	rate, balance := 2, map[string]int{"account:anna": 100, "account:berta": 20}
	var storage fencing.Watermark // refuses a holder that was paused until others had written
	transfer := func(from, to string, amount int) error {
		wants := append(rwlock.Writes(from, to), rwlock.Reads("rate")...)
		return locker.DoAll(context.Background(), wants, func(ctx context.Context) error {
			fences := slices.Collect(fencing.All(ctx))
			return storage.DoAll(ctx, fences, func(context.Context) error {
				balance[from] -= amount
				balance[to] += amount * rate
				return nil
			})
		})
	}
	fmt.Println(transfer("account:berta", "account:anna", 5), transfer("account:anna", "account:berta", 30))
	fmt.Println(balance)
	// Output:
	// <nil> <nil>
	// map[account:anna:80 account:berta:75]
}

// Several leases that the caller holds itself. One that is not free refuses all.
func ExampleLocker_TryLockAll() {
	locker, stop := embedded()
	defer stop()
	ctx := context.Background()

	all, err := locker.TryLockAll(ctx, rwlock.Writes("shelf:2", "shelf:1"))
	if err != nil {
		panic(err)
	}
	for _, lease := range all.Leases() {
		fmt.Println(lease.Name(), lease.Mode())
	}
	_, err = locker.TryLockAll(ctx, rwlock.Writes("shelf:1", "shelf:3"))
	fmt.Println(errors.Is(err, rwlock.ErrNotAcquired))
	fmt.Println(all.Release(ctx))
	// Output:
	// shelf:2 write
	// shelf:1 write
	// true
	// <nil>
}

// Of many processes that want to do the same work at the same moment, one does it.
func ExampleLocker_TryDo() {
	locker, stop := embedded()
	defer stop()
	ctx := context.Background()

	sendReport := func(ctx context.Context) error {
		fmt.Println("sending the report")
		ran, err := locker.TryDo(ctx, "report", func(context.Context) error { return nil }) // as another process would
		fmt.Println("the other one:", ran, err)
		return nil
	}
	ran, err := locker.TryDo(ctx, "report", sendReport)
	fmt.Println("this one:", ran, err)
	// Output:
	// sending the report
	// the other one: false <nil>
	// this one: true <nil>
}

// A lease is for those who hold a lock for long. The storage checks its fence, so that nothing written after the loss
// of the lease, known or not, gets through.
func ExampleLocker_Lock() {
	locker, stop := embedded()
	defer stop()
	ctx := context.Background()
	var storage fencing.Watermark // stands for a storage that checks tokens

	write := func(lease *rwlock.Lease, text string) error {
		return storage.Do(lease.Context(ctx), lease.Fence(), func(context.Context) error {
			fmt.Println("written:", text)
			return nil
		})
	}
	first, err := locker.Lock(ctx, "report", rwlock.WithTTL(100*time.Millisecond), rwlock.WithoutRenewal())
	if err != nil {
		panic(err)
	}
	<-first.Done() // as if this process had been paused: its lease is over

	second, err := locker.Lock(ctx, "report")
	if err != nil {
		panic(err)
	}
	defer second.Release(ctx)
	fmt.Println(write(second, "by the second"))
	fmt.Println("refused:", errors.Is(write(first, "by the first, late"), fencing.ErrStale))
	// Output:
	// written: by the second
	// <nil>
	// refused: true
}

func ExampleLocker_TryLock() {
	locker, stop := embedded()
	defer stop()
	ctx := context.Background()

	held, err := locker.TryLock(ctx, "nightly job", rwlock.WithMeta("worker 1"))
	fmt.Println(held != nil, err)

	_, err = locker.TryLock(ctx, "nightly job", rwlock.WithMeta("worker 2"))
	if refused, ok := errors.AsType[*rwlock.AcquireError](err); ok {
		fmt.Println("already running:", refused.Holder.Meta)
	}
	fmt.Println(held.Release(ctx))
	// Output:
	// true <nil>
	// already running: worker 1
	// <nil>
}

// Readers are in together, a writer alone.
func ExampleLocker_RLock() {
	locker, stop := embedded()
	defer stop()
	ctx := context.Background()

	one, _ := locker.RLock(ctx, "settings")
	two, _ := locker.RLock(ctx, "settings")
	_, err := locker.TryLock(ctx, "settings")
	fmt.Println(one.Mode(), two.Mode(), errors.Is(err, rwlock.ErrNotAcquired))

	_, _ = one.Release(ctx), two.Release(ctx)
	writer, err := locker.TryLock(ctx, "settings")
	fmt.Println(writer.Mode(), err)
	// Output:
	// read read true
	// write <nil>
}

// RWMutex stands in for a sync.RWMutex whose data more than one process uses.
func ExampleRWMutex() {
	locker, stop := embedded()
	defer stop()
	ctx := context.Background()

	mu := locker.RWMutex("stock")
	if err := mu.Lock(ctx); err != nil {
		panic(err)
	}
	fence, ok := fencing.FromContext(mu.Context(ctx), "stock")
	fmt.Println(ok, fence.Token == mu.Token())
	fmt.Println(mu.Unlock(ctx))
	fmt.Println(errors.Is(mu.Unlock(ctx), rwlock.ErrNotHeld))
	// Output:
	// true true
	// <nil>
	// true
}

func ExampleLocker_Inspect() {
	locker, stop := embedded(rwlock.WithMeta("worker 1"))
	defer stop()
	ctx := context.Background()

	lease, err := locker.Lock(ctx, "orders")
	if err != nil {
		panic(err)
	}
	defer lease.Release(ctx)
	state, err := locker.Inspect(ctx, "orders")
	if err != nil {
		panic(err)
	}
	for _, h := range state.Holders {
		same := state.Token == lease.Token()
		fmt.Println(state.Name, "is held by", h.Meta, "for", h.Mode, "with the token of the lease:", same)
	}
	fmt.Println(len(state.Waiters), "waiting")
	// Output:
	// orders is held by worker 1 for write with the token of the lease: true
	// 0 waiting
}

// What this process holds and waits for, for a page or a log of its operators.
func ExampleLocker_Leases() {
	locker, stop := embedded(rwlock.WithMeta("worker 1"))
	defer stop()
	ctx := context.Background()

	lease, _ := locker.Lock(ctx, "orders")
	defer lease.Release(ctx)
	mu := locker.RWMutex("catalogue")
	_ = mu.RLock(ctx)
	_ = mu.RLock(ctx)
	for s := range locker.Leases() {
		left := time.Until(s.Deadline).Round(10 * time.Second)
		fmt.Printf("%s: for %s by %d of %s, %v left, late: %v\n", s.Name, s.Mode, s.Count, s.Meta, left, s.RenewalLate)
	}
	// Unordered output:
	// orders: for write by 1 of worker 1, 10s left, late: false
	// catalogue: for read by 2 of worker 1, 10s left, late: false
}

// A job that is over at once is not done again by a process whose clock is a little late.
// A producer takes the lock of an order, and leaves it to the worker that gets the order from a queue. Nobody else has
// the lock in between.
func ExampleLease_Detach() {
	ctx := context.Background()
	producer, stop := embedded()
	defer stop()
	worker := producer // in a program: another process, over the same Redis

	lease, err := producer.Lock(ctx, "order:42")
	if err != nil {
		fmt.Println(err)
		return
	}
	ticket, err := lease.Detach(ctx, rwlock.WithTTL(time.Minute)) // for how long the order may wait in the queue
	if err != nil {
		_ = lease.Release(ctx) // no ticket was made, and the lock is still held
		return
	}
	message, _ := json.Marshal(ticket)
	fmt.Println("the producer holds it:", lease.Err() == nil)

	var received rwlock.Ticket
	if err := json.Unmarshal(message, &received); err != nil {
		fmt.Println(err)
		return
	}
	adopted, err := worker.Adopt(ctx, received)
	if err != nil {
		fmt.Println(err) // rwlock.ErrTicket: too late, or another worker was first
		return
	}
	defer adopted.Release(ctx)
	fmt.Println("the worker holds it:", adopted.Err() == nil, adopted.Token() > received.Token)

	_, err = worker.Adopt(ctx, received)
	fmt.Println("again:", errors.Is(err, rwlock.ErrTicket))
	// Output:
	// the producer holds it: false
	// the worker holds it: true true
	// again: true
}

func ExampleWithMinHold() {
	locker, stop := embedded()
	defer stop()
	ctx := context.Background()
	report := func(context.Context) error {
		fmt.Println("report sent")
		return nil
	}
	for range 3 { // processes, at the same tick
		ran, err := locker.TryDo(ctx, "report:daily", report, rwlock.WithMinHold(time.Hour))
		fmt.Println(ran, err)
	}
	// Output:
	// report sent
	// true <nil>
	// false <nil>
	// false <nil>
}

// Many short sections, on a network whose round trip is longer than the work: the release is sent and not waited for.
// What its answer would have said goes to the logger and to the Trace.
func ExampleWithBackgroundRelease() {
	locker, stop := embedded(rwlock.WithBackgroundRelease(), rwlock.WithTrace(&rwlock.Trace{
		ReleaseFailed: func(_ context.Context, e rwlock.TraceEvent, err error) { fmt.Println(e.Name, err) },
	}))
	defer stop() // Close waits for the releases under way
	ctx := context.Background()
	for i := range 3 {
		err := locker.Do(ctx, "account-17", func(context.Context) error {
			fmt.Println("section", i)
			return nil
		})
		if err != nil { // the lock was not acquired, or this process knows that it was lost
			fmt.Println(err)
		}
	}
	// Output:
	// section 0
	// section 1
	// section 2
}

// A server with a durable log may send the message of a hand-off before the log has the grant. With the option a waiter
// has the lock once the server has answered a renewal, so no failover takes it away.
func ExampleWithConfirmedHandOff() {
	locker, stop := embedded(rwlock.WithConfirmedHandOff())
	defer stop()
	ctx := context.Background()
	first, err := locker.Lock(ctx, "account-17")
	if err != nil {
		fmt.Println(err)
		return
	}
	second := make(chan error)
	go func() {
		second <- locker.Do(ctx, "account-17", func(context.Context) error {
			fmt.Println("handed over, and confirmed")
			return nil
		})
	}()
	for locker.Stats().Waiting == 0 { // the second is in the queue
		time.Sleep(time.Millisecond)
	}
	fmt.Println(first.Release(ctx), <-second)
	// Output:
	// handed over, and confirmed
	// <nil> <nil>
}

func ExampleWithTrace() {
	locker, stop := embedded(rwlock.WithTrace(&rwlock.Trace{
		Acquired: func(_ context.Context, e rwlock.TraceEvent) { fmt.Println("acquired", e.Name, "for", e.Mode) },
		Released: func(_ context.Context, e rwlock.TraceEvent) { fmt.Println("released", e.Name) },
		Lost: func(_ context.Context, e rwlock.TraceEvent, err *rwlock.LostError) {
			fmt.Println("lost", e.Name+":", err.Reason)
		},
	}))
	defer stop()
	ctx := context.Background()

	lease, _ := locker.RLock(ctx, "catalogue")
	_ = lease.Release(ctx)
	short, _ := locker.Lock(ctx, "import", rwlock.WithMaxHold(200*time.Millisecond))
	<-short.Done()
	_ = short.Release(ctx)
	// Output:
	// acquired catalogue for read
	// released catalogue
	// acquired import for write
	// lost import: max hold
}

// What became of an acquisition: each cause has its own error.
func Example_errors() {
	locker, stop := embedded()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	held, _ := locker.Lock(ctx, "orders")
	defer held.Release(ctx) // although ctx has ended by then

	_, err := locker.Lock(ctx, "orders")
	switch {
	case errors.Is(err, rwlock.ErrNotAcquired) && ctx.Err() != nil:
		fmt.Println("others held it until the time was over")
	case errors.Is(err, rwlock.ErrNotAcquired):
		fmt.Println("others hold it")
	case errors.Is(err, rwlock.ErrNoQuorum):
		fmt.Println("the Redis could not be asked: nothing is known of the lock")
	case errors.Is(err, rwlock.ErrOption):
		fmt.Println("a fault of this program:", err)
	}
	_, err = locker.Lock(ctx, "orders", rwlock.WithTTL(time.Millisecond))
	fmt.Println(err)
	// Output:
	// others held it until the time was over
	// rwlock: WithTTL: 1ms: must be 100ms to 24h0m0s
}

// A Sentinel group is one master: its address is that of the group.
func ExampleDial() {
	client, err := rwlock.Dial("", rueidis.ClientOption{
		InitAddress: []string{"sentinel-1:26379", "sentinel-2:26379", "sentinel-3:26379"},
		Sentinel:    rueidis.SentinelOption{MasterSet: "locks"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	locker, err := rwlock.New(client, rwlock.WithTTL(5*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locker.Close()
}

// A reader that finds something to write becomes the writer, and nobody writes between what it has read and what it
// writes.
func ExampleRWMutex_Upgrade() {
	locker, stop := embedded()
	defer stop()
	ctx := context.Background()

	mu := locker.RWMutex("stock")
	if err := mu.RLock(ctx); err != nil {
		panic(err)
	}
	read := mu.Token()
	if err := mu.Upgrade(ctx); err != nil { // rwlock.ErrUpgrade: unlock, lock, and read again
		_ = mu.RUnlock(ctx)
		panic(err)
	}
	fmt.Println("a new token:", mu.Token() > read)
	fmt.Println(mu.Unlock(ctx))
	// Output:
	// a new token: true
	// <nil>
}

// A writer that has written goes on reading what it wrote, and lets the other readers in.
func ExampleRWMutex_Downgrade() {
	locker, stop := embedded()
	defer stop()
	ctx := context.Background()

	mu := locker.RWMutex("stock")
	if err := mu.Lock(ctx); err != nil {
		panic(err)
	}
	if err := mu.Downgrade(ctx); err != nil {
		_ = mu.Unlock(ctx)
		panic(err)
	}
	fmt.Println(mu.TryRLock(ctx)) // another reader
	fmt.Println(mu.RUnlock(ctx), mu.RUnlock(ctx))
	// Output:
	// <nil>
	// <nil> <nil>
}

// An operator looks for locks that are held for long.
func ExampleLocker_List() {
	locker, stop := embedded()
	defer stop()
	ctx := context.Background()
	lease, _ := locker.Lock(ctx, "report/daily", rwlock.WithMeta("worker-7"))
	defer lease.Release(ctx)

	for state, err := range locker.List(ctx, "report/") {
		if err != nil {
			fmt.Println(err) // the list goes on: other servers may answer
			continue
		}
		for _, h := range state.Holders {
			fmt.Println(state.Name, h.Mode, h.Meta, h.Held < time.Minute)
		}
	}
	// Output:
	// report/daily write worker-7 true
}

// An operator takes a lock away from a process that hangs.
func ExampleLocker_Break() {
	locker, stop := embedded(rwlock.WithMeta("ann@desk"), rwlock.WithTTL(3*time.Second))
	defer stop()
	ctx := context.Background()
	lease, _ := locker.Lock(ctx, "import")

	state, _ := locker.Inspect(ctx, "import")
	err := locker.Break(ctx, "import", state.Holders[0].Hold, "hangs since noon")
	fmt.Println("broken:", err == nil) // its process has given it back, or its time is over
	<-lease.Done()
	var by *rwlock.BrokenError
	fmt.Println(errors.As(lease.Err(), &by), by)
	// Output:
	// broken: true
	// true broken by "ann@desk": "hangs since noon"
}
