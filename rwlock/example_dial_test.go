package rwlock_test

import (
	"context"
	"fmt"
	"os"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/rwlock"
)

// The Redis of the variable REDIS_URL. Several addresses are sentinels with master_set in the URL, else a Cluster.
func ExampleOpen() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	_ = os.Setenv("REDIS_URL", "redis://"+server.Addr()+"/1?client_name=shop")

	locker, err := rwlock.Open(os.Getenv("REDIS_URL"))
	if err != nil {
		panic(err)
	}
	defer locker.Close()
	fmt.Println(locker.Do(context.Background(), "invoice:7", func(context.Context) error {
		fmt.Println("in DB 1:", server.DB(1).Exists("fencelock:{invoice:7}"))
		return nil
	}))
	// Output:
	// in DB 1: true
	// <nil>
}

// counter stands for a client of rueidishook or rueidisotel.
type counter struct {
	rueidis.Client
	commands int
}

func (c *counter) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	c.commands++
	return c.Client.Do(ctx, cmd)
}

func ExampleWrap() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{})
	if err != nil {
		panic(err)
	}
	hooks := &counter{}
	client, err = rwlock.Wrap(client, func(c rueidis.Client) rueidis.Client {
		hooks.Client = c
		return hooks
	})
	if err != nil {
		panic(err)
	}
	defer client.Close()

	fmt.Println(client.Do(context.Background(), client.B().Ping().Build()).Error(), hooks.commands)
	// Output: <nil> 1
}
