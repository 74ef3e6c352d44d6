package examples_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

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
	locker, err := rwlock.New(client)
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
