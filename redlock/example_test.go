package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// masters starts the servers of an example and returns their addresses.
func masters(n int) (servers []*miniredis.Miniredis, addrs []string) {
	for range n {
		server, err := miniredis.Run()
		if err != nil {
			log.Fatal(err)
		}
		servers, addrs = append(servers, server), append(addrs, server.Addr())
	}
	return servers, addrs
}

func stop(clients []rueidis.Client, servers []*miniredis.Miniredis) {
	for _, c := range clients {
		c.Close()
	}
	for _, s := range servers {
		s.Close()
	}
}

// A locker over three masters, of which one may fail.
func ExampleNew() {
	servers, addrs := masters(3)
	clients, err := redlock.Dial(addrs, rueidis.ClientOption{})
	if err != nil {
		log.Fatal(err)
	}
	defer stop(clients, servers)

	locker, err := redlock.New(clients, rwlock.WithTTL(2*time.Second)) // how long new masters grant nothing
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx := context.Background()
	err = locker.Do(ctx, "invoices", func(ctx context.Context) error {
		servers[1].Close()
		fence, ok := fencing.FromContext(ctx, "invoices")
		fmt.Println("working on", fence.Resource, "with a token:", ok && fence.Token > 0)
		return nil
	})
	fmt.Println("done:", err)
	// Output:
	// working on invoices with a token: true
	// done: <nil>
}

// Masters may be down when a process starts. Ping names them; only without a quorum does its error match ErrNoQuorum.
func ExampleOpen() {
	servers, addrs := masters(3)
	if err := redlock.Found(context.Background(), addrs); err != nil { // these servers are new
		log.Fatal(err)
	}
	servers[2].Close()
	locker, err := redlock.Open(addrs)
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	err = locker.Ping(context.Background())
	fmt.Println("one down:", err != nil, errors.Is(err, rwlock.ErrNoQuorum))

	servers[1].Close()
	err = locker.Ping(context.Background())
	var quorum *rwlock.QuorumError
	if errors.As(err, &quorum) {
		fmt.Println("two down:", quorum.Got, "of", quorum.Need, "masters needed; failing:", len(quorum.Nodes))
	}
	stop(nil, servers)
	// Output:
	// one down: true false
	// two down: 1 of 2 masters needed; failing: 2
}

// New masters grant nothing for the longest TTL, here an hour, unless somebody gives the word that they are new.
func ExampleFound() {
	servers, addrs := masters(3)
	defer stop(nil, servers)
	ctx := context.Background()
	fmt.Println("founded:", redlock.Found(ctx, addrs, rwlock.WithTTL(time.Hour)))

	locker, err := redlock.Open(addrs, rwlock.WithTTL(time.Hour))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	lease, err := locker.TryLock(ctx, "nightly")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("granted at once:", lease.Name())
	_ = lease.Release(ctx)

	err = redlock.Found(ctx, addrs, rwlock.WithTTL(time.Hour))
	fmt.Println("twice:", err != nil)
	// Output:
	// founded: <nil>
	// granted at once: nightly
	// twice: true
}

// An acquisition may ask for more than the locker's own TTL if all clients of the masters agree on the longest.
func ExampleWithQuarantine() {
	servers, addrs := masters(3)
	defer stop(nil, servers)
	locker, err := redlock.Open(addrs, rwlock.WithTTL(time.Second), redlock.WithQuarantine(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	ctx := context.Background()
	lease, err := locker.Lock(ctx, "nightly", rwlock.WithTTL(2*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	fmt.Println("the longest is granted:", lease.Name())

	_, err = locker.Lock(ctx, "weekly", rwlock.WithTTL(time.Hour))
	fmt.Println("an hour is refused:", errors.Is(err, rwlock.ErrOption))
	// Output:
	// the longest is granted: nightly
	// an hour is refused: true
}

// Masters far away are waited for longer, and clocks that are known to be poor are trusted less.
func ExampleWithNodeTimeout() {
	servers, addrs := masters(3)
	defer stop(nil, servers)
	locker, err := redlock.Open(addrs,
		rwlock.WithTTL(time.Second), redlock.WithNodeTimeout(300*time.Millisecond), redlock.WithDrift(0.05))
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()
	lease, err := locker.Lock(context.Background(), "far")
	fmt.Println(lease != nil, err)
	_ = lease.Release(context.Background())
	// Output:
	// true <nil>
}
