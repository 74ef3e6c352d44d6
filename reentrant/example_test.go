package reentrant_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// The examples run against a server in this process; yours has an address of its own.
func server() *miniredis.Miniredis {
	s, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	return s
}

// connect is what a process does when it starts. The function returned ends what it began.
func connect(s *miniredis.Miniredis) (*rwlock.Locker, func()) {
	client, err := rwlock.Dial(s.Addr(), rueidis.ClientOption{})
	if err != nil {
		log.Fatal(err)
	}
	locker, err := rwlock.New(client)
	if err != nil {
		log.Fatal(err)
	}
	return locker, func() {
		_ = locker.Close()
		client.Close()
	}
}

// connectAlone is connect to a server that ends with it.
func connectAlone() (*rwlock.Locker, func()) {
	s := server()
	locker, stop := connect(s)
	return locker, func() {
		stop()
		s.Close()
	}
}

// A function that locks an account calls another one that locks it too.
func Example() {
	remote, stop := connectAlone()
	defer stop()
	locker := reentrant.New(remote)

	balance := 100
	withdraw := func(ctx context.Context, amount int) error {
		return locker.Do(ctx, "account/7", func(context.Context) error {
			balance -= amount
			return nil
		})
	}
	err := locker.Do(context.Background(), "account/7", func(ctx context.Context) error {
		if balance < 30 {
			return errors.New("not enough")
		}
		return withdraw(ctx, 30) // under the same lock, without asking the server
	})
	fmt.Println(balance, err)
	// Output: 70 <nil>
}

func ExampleWithOwner() {
	remote, stop := connectAlone()
	defer stop()
	locker := reentrant.New(remote)

	_, err := locker.Lock(context.Background(), "orders")
	fmt.Println(err)

	ctx := reentrant.WithOwner(context.Background()) // once, where the request comes in
	hold, err := locker.Lock(ctx, "orders")
	fmt.Println(hold.Depth(), err)
	fmt.Println(hold.Release(ctx))
	// Output:
	// reentrant: no owner in the context, attach one with WithOwner: lock "orders"
	// 1 <nil>
	// <nil>
}

func ExampleLocker_Lock() {
	remote, stop := connectAlone()
	defer stop()
	locker := reentrant.New(remote)
	ctx := reentrant.WithOwner(context.Background())

	outer, err := locker.Lock(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	nested, err := locker.RLock(ctx, "orders") // counts on the write lock
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(nested.Depth(), nested.Token() == outer.Token(), nested.Lease().Mode())
	fmt.Println(errors.Is(outer.Release(ctx), reentrant.ErrOrder))
	fmt.Println(nested.Release(ctx), outer.Release(ctx))
	// Output:
	// 2 true write
	// true
	// <nil> <nil>
}

// A write lock inside one's own read lock is an upgrade: nobody writes between what was read and what is written.
func ExampleLocker_TryLock() {
	remote, stop := connectAlone()
	defer stop()
	locker := reentrant.New(remote)

	err := locker.RDo(context.Background(), "orders", func(ctx context.Context) error {
		hold, err := locker.TryLock(ctx, "orders")
		if err != nil {
			return err // other readers are in
		}
		fmt.Println(hold.Lease().Mode())
		return hold.Release(ctx)
	})
	fmt.Println(err)
	// Output:
	// write
	// <nil>
}

func ExampleWithMaxDepth() {
	remote, stop := connectAlone()
	defer stop()
	locker := reentrant.New(remote, reentrant.WithMaxDepth(3))

	var endless func(ctx context.Context) error
	endless = func(ctx context.Context) error { return locker.Do(ctx, "tree", endless) }
	fmt.Println(endless(context.Background()))
	// Output: reentrant: nested too deep: lock "tree" is held 3 times, the limit of WithMaxDepth
}

// A goroutine beside its parent is another thread of control: it waits for the parent's lock, or does without.
func ExampleFork() {
	remote, stop := connectAlone()
	defer stop()
	locker := reentrant.New(remote)

	_ = locker.Do(context.Background(), "orders", func(ctx context.Context) error {
		done := make(chan error)
		go func() {
			_, err := locker.TryLock(reentrant.Fork(ctx), "orders")
			done <- err
		}()
		fmt.Println(errors.Is(<-done, rwlock.ErrNotAcquired))
		return nil
	})
	// Output: true
}

// The owner and the fence travel to another process, whose acquisition joins the hold of the first one.
func ExampleLocker_Do_anotherProcess() {
	s := server()
	defer s.Close()
	remote, stop := connect(s)
	defer stop()
	locker := reentrant.New(remote)
	ctx := reentrant.WithOwner(context.Background())
	hold, err := locker.Lock(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	work := hold.Context(ctx)
	message := fencing.MapCarrier{}
	// The fence and the owner; the transports of httpfence and grpcfence do it.
	if err := fencing.Inject(work, message); err != nil {
		log.Fatal(err)
	}

	process2 := func(message fencing.MapCarrier) error {
		remote, stop := connect(s)
		defer stop()
		locker := reentrant.New(remote)
		ctx, err := fencing.Extract(context.Background(), message)
		if err != nil {
			return err
		}
		return locker.Do(ctx, "orders", func(ctx context.Context) error {
			fence, _ := fencing.FromContext(ctx, "orders")
			state, err := remote.Inspect(ctx, "orders")
			fmt.Println(fence.Token == hold.Token(), state.Holders[0].Count)
			return err
		})
	}
	fmt.Println(process2(message))

	_ = hold.Release(ctx)
	fmt.Println(errors.Is(process2(message), rwlock.ErrLost)) // the fence claims what is gone
	// Output:
	// true 2
	// <nil>
	// true
}

// An owner that came as text, in a message that is not a header.
func ExampleAsOwner() {
	s := server()
	defer s.Close()
	remote, stop := connect(s)
	defer stop()
	locker := reentrant.New(remote)
	hold, err := locker.Lock(reentrant.WithOwner(context.Background()), "orders")
	if err != nil {
		log.Fatal(err)
	}
	text := hold.Lease().Owner()

	remote2, stop2 := connect(s)
	defer stop2()
	owner, err := reentrant.ParseOwner(text)
	if err != nil {
		log.Fatal(err)
	}
	joined, err := reentrant.New(remote2).Lock(reentrant.AsOwner(context.Background(), owner), "orders")
	fmt.Println(joined.Token() == hold.Token(), err)
	// Output: true <nil>
}

func ExampleHold_Context() {
	remote, stop := connectAlone()
	defer stop()
	locker := reentrant.New(remote)
	ctx := reentrant.WithOwner(context.Background())
	hold, err := locker.Lock(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	work := hold.Context(ctx)
	fence, ok := fencing.FromContext(work, "orders")
	fmt.Println(fence.Mode, fence.Token == hold.Token(), ok)

	_ = hold.Release(ctx)
	fmt.Println(context.Cause(work))
	// Output:
	// write true true
	// rwlock: lease released: lock "orders"
}

func ExampleParseOwner() {
	owner, err := reentrant.ParseOwner("01K9Z3NDEKTSV4RRFFQ69G5FAV")
	fmt.Println(owner, err)
	_, err = reentrant.ParseOwner("nobody")
	fmt.Println(err)
	// Output:
	// 01K9Z3NDEKTSV4RRFFQ69G5FAV <nil>
	// rwlock: owner: "nobody": must be a ULID other than zero
}

func ExampleNewOwner() {
	one, other := reentrant.NewOwner(), reentrant.NewOwner()
	fmt.Println(len(one.String()), one == other)
	// Output: 26 false
}

// A function that moves stock takes both shelves, also where its caller holds one of them already.
func ExampleLocker_DoAll() {
	remote, stop := connectAlone()
	defer stop()
	locker := reentrant.New(remote)

	move := func(ctx context.Context, from, to string) error {
		return locker.DoAll(ctx, rwlock.Writes(from, to), func(ctx context.Context) error {
			fmt.Println("moving from", from, "to", to, "under both locks:", ctx.Err() == nil)
			return nil
		})
	}
	err := locker.Do(context.Background(), "shelf:1", func(ctx context.Context) error {
		return move(ctx, "shelf:2", "shelf:1") // nests in the lock of shelf:1, and takes that of shelf:2
	})
	fmt.Println(err)
	// Output:
	// moving from shelf:2 to shelf:1 under both locks: true
	// <nil>
}
