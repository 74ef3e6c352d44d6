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

// orders is a database with a cache in front of it. Both check tokens.
type orders struct {
	cache    *redisguard.Guard
	database database
}

func cacheKey(id string) string { return "cache:{order:" + id + "}" }

// update runs under the write lock of the order.
func (o *orders) update(ctx context.Context, id, state string) error {
	fence, err := fencing.Require(ctx, "orders/"+id)
	if err != nil {
		return err
	}
	// First: from here on, no reader from before can fill the cache.
	if err := o.cache.Del(ctx, fence, cacheKey(id)); err != nil {
		return err
	}
	return o.database.save(ctx, fence, id, state)
}

// lookup runs under the read lock of the order.
func (o *orders) lookup(ctx context.Context, id string) (string, error) {
	fence, err := fencing.Require(ctx, "orders/"+id)
	if err != nil {
		return "", err
	}
	state, err := o.cache.Get(ctx, fence, cacheKey(id))
	if err == nil || !rueidis.IsRedisNil(err) {
		return state, err
	}
	// Reading raises the database's register: a writer from before cannot write
	// after this, so what is read stays true as long as no newer writer comes.
	if state, err = o.database.load(ctx, fence, id); err != nil {
		return "", err
	}
	err = o.cache.Derive(ctx, fence, cacheKey(id), state, time.Hour)
	if errors.Is(err, fencing.ErrStale) {
		return "", err // the lock was lost and the state has changed since
	}
	return state, nil // a cache that cannot be filled is no reason to fail
}

// A cache that never has an outdated entry: a reader that was paused between
// reading the database and filling the cache is refused.
func Example_cacheAside() {
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
	cache, err := redisguard.New(client)
	if err != nil {
		panic(err)
	}
	o := &orders{cache: cache}
	under := func(mode fencing.Mode, token fencing.Token) context.Context {
		return fencing.NewContext(context.Background(),
			fencing.Fence{Resource: "orders/42", Token: token, Mode: mode})
	}

	fmt.Println(o.update(under(fencing.Write, 16), "42", "paid"))
	o.database.afterLoad = func() { // the reader with token 17 is paused here; meanwhile
		fmt.Println(o.update(under(fencing.Write, 18), "42", "shipped"))
	}
	_, err = o.lookup(under(fencing.Read, 17), "42")
	fmt.Println(err)

	fmt.Println(o.lookup(under(fencing.Read, 19), "42"))
	fmt.Println(client.Do(context.Background(), client.B().Get().Key(cacheKey("42")).Build()).ToString())
	fmt.Println(o.update(under(fencing.Write, 18), "42", "late"))
	// Output:
	// <nil>
	// <nil>
	// fencing: stale token: "orders/42" has seen 18, got 17
	// shipped <nil>
	// shipped <nil>
	// fencing: stale token: "orders/42" has seen 19, got 18
}

// database stands for a table that package sqlguard guards.
type database struct {
	guard     fencing.Watermark
	states    map[string]string
	afterLoad func()
}

func (d *database) save(ctx context.Context, f fencing.Fence, id, state string) error {
	return d.guard.Do(ctx, f, func(context.Context) error {
		if d.states == nil {
			d.states = make(map[string]string)
		}
		d.states[id] = state
		return nil
	})
}

func (d *database) load(ctx context.Context, f fencing.Fence, id string) (state string, err error) {
	err = d.guard.Do(ctx, f, func(context.Context) error {
		state = d.states[id]
		return nil
	})
	if paused := d.afterLoad; paused != nil {
		d.afterLoad = nil
		paused()
	}
	return state, err
}
