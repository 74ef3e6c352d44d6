// Command services is two services that use one lock. The service "orders" takes the lock of an order and asks the
// service "stock" for the goods, which takes the same lock. It does not wait for its caller: the owner of the lock
// comes with the request, so it joins the hold.
//
//	go run ./services -listen 127.0.0.1:8081
//	go run ./services -listen 127.0.0.1:8080 -stock http://127.0.0.1:8081
//	curl -X POST http://127.0.0.1:8080/orders/7
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os/signal"
	"syscall"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/httpfence"
	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func main() {
	redis := flag.String("redis", "127.0.0.1:6379", "the address of the Redis")
	listen := flag.String("listen", "127.0.0.1:0", "where to listen")
	stock := flag.String("stock", "", "the URL of the service stock; without it this process is that service")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *redis, *listen, *stock); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, redis, listen, stock string) error {
	locker, err := rwlock.Open(redis)
	if err != nil {
		return err
	}
	defer locker.Close()

	s := service{locks: reentrant.New(locker), stock: stock, client: &http.Client{Transport: &httpfence.Transport{}}}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}", httpfence.Extract(http.HandlerFunc(s.handle)))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := locker.Ping(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening http://" + listener.Addr().String())
	server := &http.Server{Handler: mux}
	go func() { log.Print(server.Serve(listener)) }()
	<-ctx.Done()
	return server.Shutdown(context.WithoutCancel(ctx)) // waits for the requests under way
}

type service struct {
	locks  *reentrant.Locker
	stock  string
	client *http.Client
}

func (s service) handle(w http.ResponseWriter, r *http.Request) {
	name := "orders/" + r.PathValue("id")
	err := s.locks.Do(r.Context(), name, func(ctx context.Context) error {
		fence, err := fencing.Require(ctx, name)
		if err != nil {
			return err
		}
		if s.stock == "" {
			_, err = fmt.Fprintln(w, "reserved under", fence.Token)
			return err
		}
		if _, err := fmt.Fprintln(w, "ordered under", fence.Token); err != nil {
			return err
		}
		return s.reserve(ctx, w, r.PathValue("id"))
	})
	if err != nil {
		httpfence.WriteProblem(w, err)
	}
}

// reserve asks the service stock. The transport of the client sends the fence and the owner that ctx carries.
func (s service) reserve(ctx context.Context, w io.Writer, id string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.stock+"/orders/"+id, nil)
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if err := httpfence.ResponseError(response); err != nil {
		return err
	}
	_, err = io.Copy(w, response.Body)
	return err
}
