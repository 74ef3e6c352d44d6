package page

import (
	"context"
	"database/sql"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/go-co-op/gocron/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/httpfence"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/ticks"
)

func servers(t *testing.T) (*rwlock.Locker, rueidis.Client, *redisguard.Guard) {
	t.Helper()
	client, err := rwlock.Dial(miniredis.RunT(t).Addr(), rueidis.ClientOption{})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	locker, err := rwlock.New(client)
	require.NoError(t, err)
	t.Cleanup(func() { _ = locker.Close() })
	guard, err := redisguard.New(client)
	require.NoError(t, err)
	return locker, client, guard
}

// within runs work in a section of a lock, with the section's context and fence.
func within(t *testing.T, locker *rwlock.Locker, name string, work func(context.Context, fencing.Fence) error) {
	t.Helper()
	require.NoError(t, locker.Do(t.Context(), name, func(ctx context.Context) error {
		fence, err := fencing.Require(ctx, name)
		require.NoError(t, err)
		return work(ctx, fence)
	}))
}

func TestGuide(t *testing.T) {
	locker, _, guard := servers(t)
	c := config{mu: locker.RWMutex("config", rwlock.WithLinger(time.Minute)), guard: guard}
	for _, text := range []string{"", "one", "two"} {
		within(t, locker, "config", func(ctx context.Context, fence fencing.Fence) error {
			return guard.Set(ctx, fence, "config", text, 0)
		})
		for range 2 {
			read, err := c.read(t.Context())
			require.NoError(t, err)
			require.Equal(t, text, read)
		}
	}

	lease, err := locker.Lock(t.Context(), "job")
	require.NoError(t, err)
	ticket, err := detach(t.Context(), lease)
	require.NoError(t, err)
	done := func(ctx context.Context) error { return ctx.Err() }
	require.NoError(t, adopt(t.Context(), locker, ticket, done))
	require.ErrorIs(t, adopt(t.Context(), locker, ticket, done), rwlock.ErrTicket)

	leading, resign := context.WithCancel(t.Context())
	run(leading, locker, func(context.Context) error {
		resign()
		return nil
	})
}

func TestFencing(t *testing.T) {
	locker, client, guard := servers(t)
	for _, key := range []string{"balance:{7}", "balance:{bank}:7"} {
		require.NoError(t, client.Do(t.Context(), client.B().Set().Key(key).Value("50").Build()).Error())
	}
	within(t, locker, "orders/42", func(ctx context.Context, fence fencing.Fence) error {
		require.NoError(t, new(accounts).Save(ctx, fence, 7))
		n, err := count(ctx, client, guard, fence, "{42}:set")
		require.NoError(t, err)
		require.Zero(t, n)
		left, err := pay(ctx, guard, fence)
		require.NoError(t, err)
		require.Equal(t, int64(20), left)
		require.NoError(t, move(ctx, guard, withdraw, []fencing.Fence{fence}))
		return ship(ctx, guard)
	})
	require.Equal(t, "done", post(t.Context(), locker, new(fencing.Watermark), context.Cause))
	server(new(fencing.Watermark)).Stop()

	name := func(*http.Request) string { return "orders/42" }
	shop := httptest.NewServer(handler(new(fencing.Watermark), name, service(new(fencing.Watermark))))
	defer shop.Close()
	fenced := &http.Client{Transport: &httpfence.Transport{}}
	within(t, locker, "orders/42", func(ctx context.Context, _ fencing.Fence) error {
		request, err := http.NewRequestWithContext(ctx, "POST", shop.URL+"/orders/42", nil)
		require.NoError(t, err)
		answer, err := fenced.Do(request)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, answer.StatusCode)
		return answer.Body.Close()
	})
}

func TestSQL(t *testing.T) {
	locker, _, _ := servers(t)
	guard, err := sqlguard.New(sqlguard.SQLite)
	require.NoError(t, err)
	db := rows(t, `CREATE TABLE log (line TEXT); CREATE TABLE profiles (id TEXT PRIMARY KEY, body TEXT, fence BIGINT);
		CREATE TABLE accounts (id INT, balance INT, fence BIGINT); INSERT INTO accounts VALUES (7, 0, 0), (8, 0, 0)`)
	require.NoError(t, guard.Create(t.Context(), db))
	within(t, locker, "accounts/7", func(ctx context.Context, fence fencing.Fence) error {
		require.NoError(t, set(ctx, db, fence, 7, 100))
		require.NoError(t, put(ctx, db, fence, "seven", "text"))
		require.NoError(t, enter(ctx, db, guard, fence))
		return book(ctx, db, guard, 30)
	})
	require.NoError(t, transfer(t.Context(), locker, db, guard, 7, 8, 10))
	require.Equal(t, 60, number(t, db, `SELECT balance FROM accounts WHERE id = 7`))
	require.Equal(t, 10, number(t, db, `SELECT balance FROM accounts WHERE id = 8`))
	require.Equal(t, 2, number(t, db, `SELECT (SELECT count(*) FROM profiles) + (SELECT count(*) FROM log)`))
}

// store is the database of the page.
type store struct{ state string }

func (s *store) save(_ context.Context, _ fencing.Fence, _, state string) error {
	s.state = state
	return nil
}

func (s *store) load(context.Context, fencing.Fence, string) (string, error) { return s.state, nil }

func TestIntegrations(t *testing.T) {
	locker, client, guard := servers(t)
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	opened, err := open(rdb)
	require.NoError(t, err)
	require.NoError(t, opened.Close())
	require.NoError(t, rdb.Close())

	soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	require.NoError(t, cron(soon, client, context.Cause))
	require.NoError(t, migrate(t.Context(), locker, context.Cause))
	ran, _ := tick(t.Context(), locker, "job", context.Cause) // on a busy machine its TTL of a second may be over
	require.True(t, ran)
	scheduler, err := gocron.NewScheduler()
	require.NoError(t, err)
	claims, err := ticks.New(client)
	require.NoError(t, err)
	require.NoError(t, hourly(scheduler, claims, context.Cause))
	require.NoError(t, scheduler.Shutdown())

	shop := &orders{guard, new(store)}
	within(t, locker, "orders/42", func(ctx context.Context, fence fencing.Fence) error {
		require.NoError(t, shop.update(ctx, fence, "42", "shipped"))
		for range 2 { // from the database, and from the cache
			state, err := shop.lookup(ctx, fence, "42")
			require.NoError(t, err)
			require.Equal(t, "shipped", state)
		}
		log, applied := make(chan message, 1), ""
		require.NoError(t, publish(ctx, log, "text"))
		require.NoError(t, consume(context.Background(), <-log, new(fencing.Watermark), func(body string) { applied = body }))
		require.Equal(t, "text", applied)
		return nil
	})

	require.NoError(t, migrated(t.Context(), locker, context.Cause))
}

func TestOperate(t *testing.T) {
	locker, client, _ := servers(t)
	page := httptest.NewRecorder()
	pages(locker).ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), "GET", "/debug/locks", nil))
	require.Equal(t, 200, page.Code)
	kind := func(name string) string { return name }
	require.NoError(t, observed(t.Context(), client, noop.NewMeterProvider(), kind, context.Cause))
}

func TestReadme(t *testing.T) {
	locker, _, _ := servers(t)
	calls := 0
	require.NoError(t, forms(t.Context(), locker, func(ctx context.Context) error {
		calls++
		return context.Cause(ctx)
	}))
	require.Equal(t, 4, calls)

	guard, err := sqlguard.New(sqlguard.SQLite)
	require.NoError(t, err)
	db := rows(t, `CREATE TABLE accounts (id INT, balance INT); INSERT INTO accounts VALUES (42, 0)`)
	require.NoError(t, guard.Create(t.Context(), db))
	within(t, locker, "account:42", func(ctx context.Context, fence fencing.Fence) error {
		require.NoError(t, deposit(ctx, guard, db, 7))
		newer := fence
		newer.Token++
		nothing := func(context.Context, *sql.Tx) error { return nil }
		require.NoError(t, guard.Do(ctx, db, newer, nothing))
		require.ErrorIs(t, deposit(ctx, guard, db, 7), fencing.ErrStale) // a newer holder has written
		return nil
	})
	require.Equal(t, 7, number(t, db, `SELECT balance FROM accounts`))
}

func rows(t *testing.T, schema string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxOpenConns(1)
	_, err = db.ExecContext(t.Context(), schema)
	require.NoError(t, err)
	return db
}

func number(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
