// Command bank transfers between the accounts of a PostgreSQL, under the locks of both accounts. Any number of its
// processes serve the same accounts:
//
//	go run ./bank -redis 127.0.0.1:6379 -database postgres://127.0.0.1/bank -listen 127.0.0.1:8080
//	curl -X POST 'http://127.0.0.1:8080/transfer?from=7&to=8&amount=10'
//
// The database has the table accounts (id INT PRIMARY KEY, balance INT), with its rows, and the guard table, which the
// Create of a sqlguard.Guard makes.
//
// A process that is paused inside a transfer, for longer than its locks last, writes nothing when it goes on: the
// database has ended its transaction, or refuses its fences.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/rwlock"
)

func main() {
	redis := flag.String("redis", "127.0.0.1:6379", "the address of the Redis")
	database := flag.String("database", "", "the PostgreSQL with the tables accounts (id, balance) and fencelock_guard")
	listen := flag.String("listen", "127.0.0.1:0", "where to listen")
	ttl := flag.Duration("ttl", 5*time.Second, "how long a process that has died is waited for")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *redis, *database, *listen, *ttl); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, redis, database, listen string, ttl time.Duration) error {
	locker, err := rwlock.Open(redis, rwlock.WithTTL(ttl), rwlock.WithMaxWait(time.Minute))
	if err != nil {
		return err
	}
	defer locker.Close()
	db, err := sql.Open("pgx", database)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	guard, err := sqlguard.New(sqlguard.PostgreSQL)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println("listening http://" + listener.Addr().String())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /transfer", bank{locker, db, guard}.handle)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := locker.Ping(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	server := &http.Server{Handler: mux}
	go func() { log.Print(server.Serve(listener)) }()
	<-ctx.Done()
	return server.Shutdown(context.WithoutCancel(ctx)) // waits for the requests under way
}

type bank struct {
	locks *rwlock.Locker
	db    *sql.DB
	guard *sqlguard.Guard
}

func (b bank) handle(w http.ResponseWriter, r *http.Request) {
	from, errFrom := strconv.Atoi(r.FormValue("from"))
	to, errTo := strconv.Atoi(r.FormValue("to"))
	amount, err := strconv.Atoi(r.FormValue("amount"))
	if errors.Join(errFrom, errTo, err) != nil || amount <= 0 || from == to {
		http.Error(w, "want from, to and amount", http.StatusBadRequest)
		return
	}
	switch err := b.transfer(r.Context(), from, to, amount); {
	case err == nil || rwlock.Completed(err): // lost after the commit is no reason to repeat the transfer
	case errors.Is(err, errRefused):
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

var errRefused = errors.New("no such account, or not enough in it")

// transfer makes the names of the locks from numbers: an account has one name, however it was written.
func (b bank) transfer(ctx context.Context, from, to, amount int) error {
	names := []string{fmt.Sprintf("accounts/%d", from), fmt.Sprintf("accounts/%d", to)}
	return b.locks.DoAll(ctx, rwlock.Writes(names...), func(ctx context.Context) error {
		var fences []fencing.Fence
		for _, name := range names {
			fence, err := fencing.Require(ctx, name)
			if err != nil {
				return err
			}
			fences = append(fences, fence)
		}
		return b.guard.DoAll(ctx, b.db, fences, func(ctx context.Context, tx *sql.Tx) error {
			if err := add(ctx, tx, from, -amount); err != nil {
				return err
			}
			fmt.Println("inside", from, to)
			return add(ctx, tx, to, amount)
		})
	})
}

// add changes a balance, which does not become negative.
func add(ctx context.Context, tx *sql.Tx, account, amount int) error {
	result, err := tx.ExecContext(ctx,
		`UPDATE accounts SET balance = balance + $1 WHERE id = $2 AND balance + $1 >= 0`, amount, account)
	if err != nil {
		return err
	}
	switch n, err := result.RowsAffected(); {
	case err != nil:
		return err
	case n != 1:
		return fmt.Errorf("account %d: %w", account, errRefused)
	}
	return nil
}
