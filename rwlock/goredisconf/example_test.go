package goredisconf_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/rwlock/goredisconf"
)

// A service with a client of go-redis takes locks in the same Redis.
func ExampleFrom() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	options := &redis.Options{Addr: server.Addr(), PoolSize: 7}

	addr, base, ignored, err := goredisconf.From(options)
	if err != nil {
		panic(err)
	}
	fmt.Println("not for locks:", ignored)
	client, err := rwlock.Dial(addr, base)
	if err != nil {
		panic(err)
	}
	defer client.Close()
	locker, err := rwlock.New(client)
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	err = locker.Do(context.Background(), "invoice:7", func(context.Context) error {
		fmt.Println("inside")
		return nil
	})
	fmt.Println(err)
	// Output:
	// not for locks: [PoolSize]
	// inside
	// <nil>
}

// The same in one call. What is ignored goes to the log.
func ExampleOpen() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), PoolSize: 7})
	defer rdb.Close()

	locker, err := goredisconf.Open(rdb.Options())
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	err = locker.Do(context.Background(), "invoice:7", func(context.Context) error {
		fmt.Println("inside")
		return nil
	})
	fmt.Println(err)
	// Output:
	// inside
	// <nil>
}
