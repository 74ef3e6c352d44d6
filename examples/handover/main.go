// Command handover is two processes, the second of which goes on under the lock of the first: a warehouse, and a shop
// that reserves an order, hands its lock over and ends. No other process has the lock in between.
//
//	go run ./handover -warehouse 127.0.0.1:8080
//	go run ./handover -warehouse 127.0.0.1:8080 -order 7
//
// After kill -9 of the shop, a lock that it has detached stands for the warehouse for 10 s, and a lock that it has not
// detached is free when its TTL is over.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/rwlock"
)

func main() {
	redis := flag.String("redis", "127.0.0.1:6379", "the address of the Redis")
	order := flag.String("order", "", "the order of the shop; without it this process is the warehouse")
	warehouse := flag.String("warehouse", "127.0.0.1:8080", "where the warehouse listens")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *redis, *order, *warehouse); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, redis, order, warehouse string) error {
	client, err := rwlock.Dial(redis, rueidis.ClientOption{})
	if err != nil {
		return err
	}
	defer client.Close()
	locker, err := rwlock.New(client, rwlock.WithMaxWait(time.Minute))
	if err != nil {
		return err
	}
	defer locker.Close()
	guard, err := redisguard.New(client)
	if err != nil {
		return err
	}
	p := process{locker, guard}
	if order != "" {
		return p.reserve(ctx, "orders/"+order, warehouse)
	}
	listener, err := net.Listen("tcp", warehouse)
	if err != nil {
		return err
	}
	fmt.Println("listening", listener.Addr())
	server := &http.Server{Handler: http.HandlerFunc(p.ship)}
	go func() { log.Print(server.Serve(listener)) }()
	<-ctx.Done()
	return server.Shutdown(context.WithoutCancel(ctx)) // waits for the orders under way
}

type process struct {
	locks *rwlock.Locker
	guard *redisguard.Guard
}

// reserve is the part of the shop.
func (p process) reserve(ctx context.Context, order, warehouse string) error {
	lease, err := p.locks.Lock(ctx, order)
	if err != nil {
		return err
	}
	defer func() { _ = lease.Release(ctx) }() // it does nothing after Detach
	fmt.Println("reserving", lease.Token())
	if err := p.guard.Set(lease.Context(ctx), lease.Fence(), order, "reserved", 0); err != nil {
		return err
	}
	ticket, err := lease.Detach(ctx, rwlock.WithTTL(10*time.Second)) // for a message that takes no longer
	if err != nil {
		return err
	}
	body, err := json.Marshal(ticket)
	if err != nil {
		return err
	}
	response, err := http.Post("http://"+warehouse, "application/json", bytes.NewReader(body))
	if err == nil {
		fmt.Println("answered", response.Status)
		err = response.Body.Close()
	}
	return err
}

// ship is the part of the warehouse. Adopt refuses a ticket that was used before, or is too old.
func (p process) ship(w http.ResponseWriter, r *http.Request) {
	ctx := context.WithoutCancel(r.Context()) // which ends if the shop dies
	var ticket rwlock.Ticket
	err := json.NewDecoder(r.Body).Decode(&ticket)
	if err == nil {
		var lease *rwlock.Lease
		if lease, err = p.locks.Adopt(ctx, ticket); err == nil {
			defer func() { _ = lease.Release(ctx) }()
			fmt.Println("shipping", lease.Token())
			err = p.guard.Set(lease.Context(ctx), lease.Fence(), ticket.Name, "shipped", 0)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
	}
}
