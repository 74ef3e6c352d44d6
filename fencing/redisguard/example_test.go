package redisguard_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
)

// exampleClient is a client of a Redis in this process.
func exampleClient() (client rueidis.Client, end func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	client, err = rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{server.Addr()}, ForceSingleClient: true, DisableCache: true,
	})
	if err != nil {
		panic(err)
	}
	return client, func() { client.Close(); server.Close() }
}

// A holder that was paused writes late: its write is refused in the same script
// call that would have done it.
func Example() {
	client, end := exampleClient()
	defer end()
	guard, err := redisguard.New(client)
	if err != nil {
		panic(err)
	}
	// With a real lock: the fence is in lease.Context(parent).
	ship := func(ctx context.Context) error {
		fence, err := fencing.Require(ctx, "orders/42")
		if err != nil {
			return err
		}
		return guard.Set(ctx, fence, "order:{42}:state", "shipped", 0)
	}
	current := fencing.NewContext(context.Background(),
		fencing.Fence{Resource: "orders/42", Token: 18, Mode: fencing.Write})
	paused := fencing.NewContext(context.Background(),
		fencing.Fence{Resource: "orders/42", Token: 17, Mode: fencing.Write})

	fmt.Println(ship(current))
	fmt.Println(ship(paused))
	fmt.Println(ship(context.Background()))
	// Output:
	// <nil>
	// fencing: stale token: "orders/42" has seen 18, got 17
	// fencing: no token for "orders/42"
}

// Any access that a script can do is fenced: here a withdrawal that does not
// overdraw.
func ExampleGuard_Do() {
	client, end := exampleClient()
	defer end()
	guard, err := redisguard.New(client)
	if err != nil {
		panic(err)
	}
	withdraw := redisguard.NewScript(`
local balance = tonumber(redis.call('GET', KEYS[1]) or '0')
if balance < tonumber(ARGV[1]) then return redis.error_reply('LOW the balance is too low') end
return redis.call('DECRBY', KEYS[1], ARGV[1])`)

	ctx := context.Background()
	pay := func(fence fencing.Fence, amount string) (int64, error) {
		if fence.Mode != fencing.Write { // Do sends any script, under a read lock too
			return 0, fmt.Errorf("%w for writing: %v", fencing.ErrMissing, fence)
		}
		reply, err := guard.Do(ctx, fence, withdraw, []string{"balance:{7}"}, []string{amount})
		if err != nil {
			return 0, err
		}
		return reply.AsInt64()
	}
	fence := fencing.Fence{Resource: "account/7", Token: 18, Mode: fencing.Write}
	if err := guard.Set(ctx, fence, "balance:{7}", "100", 0); err != nil {
		panic(err)
	}
	fmt.Println(pay(fence, "30"))
	_, err = pay(fence, "80")
	fmt.Println(err)

	reader := fencing.Fence{Resource: "account/7", Token: 18, Mode: fencing.Read}
	_, err = pay(reader, "30")
	fmt.Println(err)

	fence.Token = 17
	_, err = pay(fence, "30")
	fmt.Println(errors.Is(err, fencing.ErrStale))
	// Output:
	// 70 <nil>
	// redisguard: key "balance:{7}": LOW the balance is too low
	// fencing: no token for writing: read "account/7" token 18
	// true
}

// A transfer between two accounts under the locks of both. Their balances have one hash tag, so that one server has
// both.
func ExampleGuard_DoAll() {
	client, end := exampleClient()
	defer end()
	guard, err := redisguard.New(client)
	if err != nil {
		panic(err)
	}
	transfer := redisguard.NewScript(`
if tonumber(redis.call('GET', KEYS[1]) or '0') < tonumber(ARGV[1]) then
  return redis.error_reply('LOW the balance is too low')
end
redis.call('DECRBY', KEYS[1], ARGV[1])
return redis.call('INCRBY', KEYS[2], ARGV[1])`)

	ctx := context.Background()
	fence := func(resource string, token fencing.Token) fencing.Fence {
		return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Write}
	}
	if err := guard.Set(ctx, fence("account/7", 34), "balance:{bank}:7", "100", 0); err != nil {
		panic(err)
	}
	keys := []string{"balance:{bank}:7", "balance:{bank}:8"}
	fences := []fencing.Fence{fence("account/7", 34), fence("account/8", 51)}
	reply, err := guard.DoAll(ctx, fences, transfer, keys, []string{"30"})
	if err != nil {
		panic(err)
	}
	fmt.Println(reply.AsInt64())

	fences = []fencing.Fence{fence("account/7", 35), fence("account/8", 50)} // one of the two locks has been lost
	_, err = guard.DoAll(ctx, fences, transfer, keys, []string{"30"})
	fmt.Println(err)
	// Output:
	// 30 <nil>
	// fencing: stale token: "account/8" has seen 51, got 50
}

// The holder's first access is a read elsewhere, so it claims first: from then on
// no older write can land between that read and its own write.
func ExampleGuard_Claim() {
	client, end := exampleClient()
	defer end()
	guard, err := redisguard.New(client)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	const key = "stock:{9}"
	current := fencing.Fence{Resource: "stock/9", Token: 18, Mode: fencing.Write}
	paused := fencing.Fence{Resource: "stock/9", Token: 17, Mode: fencing.Write}

	if err := guard.Claim(ctx, current, key); err != nil {
		panic(err)
	}
	count, err := client.Do(ctx, client.B().Scard().Key(key).Build()).AsInt64() // by other means
	if err != nil {
		panic(err)
	}
	fmt.Println(guard.Set(ctx, paused, key, "99", 0))
	fmt.Println(guard.Set(ctx, current, key, fmt.Sprint(count), 0))
	// Output:
	// fencing: stale token: "stock/9" has seen 18, got 17
	// <nil>
}

// What a reader computes from what it read is stored while nothing newer has been
// written, whichever reader comes first.
func ExampleGuard_Derive() {
	client, end := exampleClient()
	defer end()
	guard, err := redisguard.New(client)
	if err != nil {
		panic(err)
	}
	ctx := context.Background()
	reader := func(token fencing.Token) fencing.Fence {
		return fencing.Fence{Resource: "orders/42", Token: token, Mode: fencing.Read}
	}
	writer := fencing.Fence{Resource: "orders/42", Token: 18, Mode: fencing.Write}

	fmt.Println(guard.Derive(ctx, reader(17), "total:{42}", "99.90", time.Hour))
	fmt.Println(guard.Derive(ctx, reader(16), "total:{42}", "99.90", time.Hour))
	fmt.Println(guard.Del(ctx, writer, "total:{42}"))
	fmt.Println(guard.Derive(ctx, reader(17), "total:{42}", "99.90", time.Hour))
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// fencing: stale token: "orders/42" has seen 18, got 17
}
