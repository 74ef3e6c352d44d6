package examples_test

import (
	"database/sql"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// The shop is killed after it has detached the lock, while it sends the ticket. The lock stands, and the warehouse goes
// on with the order, once. The next shop is not killed, and finds the lock free.
func TestHandover(t *testing.T) {
	t.Parallel()
	server := testredis.Start(t)
	tickets := make(chan string, 1)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if ticket, err := io.ReadAll(r.Body); err == nil {
			tickets <- string(ticket)
		}
		<-r.Context().Done()
	}))
	t.Cleanup(slow.Close)
	warehouse := start(t, 1, "handover", "-redis", server.Addr(), "-warehouse", "127.0.0.1:0")[0]
	addr := warehouse.until("listening")
	token := func(p *process, word string) int {
		token, err := strconv.Atoi(p.until(word))
		require.NoError(t, err)
		return token
	}

	killed := start(t, 1, "handover", "-redis", server.Addr(), "-order", "7",
		"-warehouse", strings.TrimPrefix(slow.URL, "http://"))[0]
	reserved, ticket := token(killed, "reserving"), <-tickets
	killed.signal(syscall.SIGKILL)
	require.Error(t, killed.wait())
	client, err := rwlock.Dial(server.Addr(), rueidis.ClientOption{})
	require.NoError(t, err)
	defer client.Close()
	locker, err := rwlock.New(client, testredis.Patience())
	require.NoError(t, err)
	defer func() { _ = locker.Close() }()
	_, err = locker.TryLock(t.Context(), "orders/7")
	require.ErrorIs(t, err, rwlock.ErrNotAcquired)

	status, body := post(t, "http://"+addr, ticket)
	require.Equal(t, http.StatusOK, status, body)
	shipped := token(warehouse, "shipping")
	require.Greater(t, shipped, reserved)
	state, err := server.Command("GET", "orders/7")
	require.NoError(t, err)
	require.Equal(t, "shipped", state)
	status, body = post(t, "http://"+addr, ticket)
	require.Equal(t, http.StatusConflict, status)
	require.Contains(t, body, rwlock.ErrTicket.Error())

	next := start(t, 1, "handover", "-redis", server.Addr(), "-order", "7", "-warehouse", addr)[0]
	require.Greater(t, token(next, "reserving"), shipped)
	require.Equal(t, "200", next.until("answered"))
	require.NoError(t, next.wait())
}

// transfers counts the answers to transfers of 1.
type transfers struct {
	mu                        sync.Mutex
	answered                  int
	accepted                  int // from 7 to 8, less those from 8 to 7
	refusedThere, refusedBack int
	running                   sync.WaitGroup
}

// run sends so many transfers to a process, one after the other.
func (s *transfers) run(t *testing.T, url string, n int, back bool) {
	query, sign, refused := "/transfer?from=7&to=8&amount=1", 1, &s.refusedThere
	if back {
		query, sign, refused = "/transfer?from=8&to=7&amount=1", -1, &s.refusedBack
	}
	s.running.Go(func() {
		for range n {
			status, body := post(t, url+query, "")
			t.Log(url+query, status, body)
			s.mu.Lock()
			s.answered++
			if status == http.StatusOK {
				s.accepted += sign
			} else {
				*refused++
			}
			s.mu.Unlock()
		}
	})
}

// bank starts processes over a database with the accounts 7, with a balance of 100, and 8, with 0.
func bank(t *testing.T, processes int, ttl string) (db *sql.DB, started []*process, urls []string) {
	t.Helper()
	redis := testredis.Start(t)
	dsn := postgres.Database(t)
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	guard, err := sqlguard.New(sqlguard.PostgreSQL)
	require.NoError(t, err)
	require.NoError(t, guard.Create(t.Context(), db))
	_, err = db.Exec(`CREATE TABLE accounts (id INT PRIMARY KEY, balance INT);
		INSERT INTO accounts VALUES (7, 100), (8, 0)`)
	require.NoError(t, err)
	started = start(t, processes, "bank", "-redis", redis.Addr(), "-database", dsn, "-ttl", ttl)
	for _, p := range started {
		urls = append(urls, p.until("listening"))
	}
	return db, started, urls
}

func requireBalances(t *testing.T, db *sql.DB, seven, eight int) {
	t.Helper()
	for id, want := range map[int]int{7: seven, 8: eight} {
		var balance int
		require.NoError(t, db.QueryRow(`SELECT balance FROM accounts WHERE id = $1`, id).Scan(&balance))
		require.Equal(t, want, balance, "account %d", id)
	}
}

// A process that is asked to end finishes the transfer that is under way.
func TestBankEndsAfterItsTransfers(t *testing.T) {
	t.Parallel()
	db, processes, urls := bank(t, 1, "10s")
	tx, err := db.Begin()
	require.NoError(t, err)
	_, err = tx.Exec(`SELECT FROM accounts WHERE id = 8 FOR UPDATE`) // the transfer waits for it
	require.NoError(t, err)
	var its transfers
	its.run(t, urls[0], 1, false)
	processes[0].until("inside")
	processes[0].signal(syscall.SIGTERM)
	require.Eventually(t, func() bool {
		status, _ := post(t, urls[0]+"/transfer", "")
		return status == 0
	}, patience, time.Millisecond, "it still listens")
	require.NoError(t, tx.Rollback())
	its.running.Wait()
	require.Equal(t, 1, its.accepted)
	require.NoError(t, processes[0].wait())
	requireBalances(t, db, 99, 1)
}

// What is refused moves nothing: an account that there is not, more than there is, and one account by two names.
func TestBankRefuses(t *testing.T) {
	t.Parallel()
	db, _, urls := bank(t, 1, "10s")
	for query, want := range map[string]int{
		"from=7&to=9&amount=1": http.StatusConflict, "from=9&to=7&amount=1": http.StatusConflict,
		"from=7&to=8&amount=101": http.StatusConflict, "from=7&to=07&amount=1": http.StatusBadRequest,
		"from=7&to=8&amount=-1": http.StatusBadRequest, "from=7&to=&amount=1": http.StatusBadRequest,
	} {
		status, body := post(t, urls[0]+"/transfer?"+query, "")
		require.Equal(t, want, status, "%s: %s", query, body)
	}
	requireBalances(t, db, 100, 0)
	ready, err := http.Get(urls[0] + "/readyz")
	require.NoError(t, err)
	require.NoError(t, ready.Body.Close())
	require.Equal(t, http.StatusOK, ready.StatusCode)
}

// Four processes transfer back and forth. One of them is stopped inside a transfer, for longer than its locks last: the
// others go on, and no money is lost or made.
func TestBank(t *testing.T) {
	t.Parallel()
	db, processes, urls := bank(t, 4, "1s")
	paused := processes[0]
	var its, others transfers
	its.run(t, urls[0], 3, false)
	paused.until("inside")
	paused.signal(syscall.SIGSTOP)
	others.run(t, urls[1], 5, false)
	others.run(t, urls[2], 5, true)
	others.run(t, urls[3], 5, false)
	require.Eventually(t, func() bool {
		others.mu.Lock()
		defer others.mu.Unlock()
		return others.answered == 15
	}, patience, time.Millisecond, "the others wait for the process that stands still")
	paused.signal(syscall.SIGCONT)
	its.running.Wait()
	others.running.Wait()

	var seven, eight int
	require.NoError(t, db.QueryRow(`SELECT balance FROM accounts WHERE id = 7`).Scan(&seven))
	require.NoError(t, db.QueryRow(`SELECT balance FROM accounts WHERE id = 8`).Scan(&eight))
	require.Equal(t, 100, seven+eight, "a transfer is there by half")
	// An error of a commit leaves open whether it took place.
	accepted := its.accepted + others.accepted
	require.GreaterOrEqual(t, eight, accepted-its.refusedBack-others.refusedBack)
	require.LessOrEqual(t, eight, accepted+its.refusedThere+others.refusedThere)
}
