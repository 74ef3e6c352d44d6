package rwlock_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// A connection that could not be opened replaces none: what the locker knows of the server stays true.
func TestDialsCountsTheConnectionsThatWereOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		client, err := rwlock.Dial("", link.Option())
		require.NoError(t, err)
		defer client.Close()
		told := client.(interface {
			Dials() uint64
			LastDials() (newest, call string, next <-chan struct{})
		})
		open := func() error {
			c, giveBack := client.Dedicate()
			defer giveBack()
			return c.Do(t.Context(), c.B().Ping().Build()).Error()
		}
		before := told.Dials()
		_, _, next := told.LastDials()
		link.Refuse()
		require.Error(t, open())
		require.Equal(t, before, told.Dials())
		select {
		case <-next:
			require.Fail(t, "nothing was opened")
		default:
		}
		link.Restore()
		require.NoError(t, open())
		require.Equal(t, before+1, told.Dials())
		<-next
		newest, call, _ := told.LastDials()
		require.Empty(t, call, "no call has been dialled for")
		require.NotEmpty(t, newest)

		link.Cut()
		synctest.Wait()
		require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error())
		_, call, _ = told.LastDials()
		require.Equal(t, newest, call)
	})
}

// socket counts the writes that go out. Like one of the system it takes them without waiting for the other end.
type socket struct {
	net.Conn
	writes *atomic.Int64
	sent   chan []byte
	gone   chan struct{}
	close  sync.Once
}

func newSocket(conn net.Conn, writes *atomic.Int64) *socket {
	s := &socket{Conn: conn, writes: writes, sent: make(chan []byte, 1024), gone: make(chan struct{})}
	go func() {
		for {
			select {
			case b := <-s.sent:
				_, _ = conn.Write(b) // where it fails, reading fails as well
			case <-s.gone:
				return
			}
		}
	}()
	return s
}

func (s *socket) Write(b []byte) (int, error) {
	select {
	case <-s.gone:
		return 0, net.ErrClosed
	default:
	}
	s.writes.Add(1)
	s.sent <- bytes.Clone(b)
	return len(b), nil
}

func (s *socket) Close() error {
	s.close.Do(func() { close(s.gone) })
	return s.Conn.Close()
}

// What many goroutines ask for at once leaves in few writes. One processor runs all of them, so that those who are
// ready to run do not run already; and time is fake, so that writes follow each other closely on any machine.
func TestManyCallersShareWrites(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	synctest.Test(t, func(t *testing.T) {
		const callers, rounds = 64, 50
		var writes atomic.Int64
		option := testredis.NewMini(t).NewLink().Option()
		dial := option.DialCtxFn
		option.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, c *tls.Config) (net.Conn, error) {
			conn, err := dial(ctx, addr, d, c)
			if err != nil {
				return nil, err
			}
			return newSocket(conn, &writes), nil
		}
		client, err := rwlock.Dial("", option)
		require.NoError(t, err)
		defer client.Close()

		synctest.Wait()
		before := writes.Load()
		for range rounds {
			burst(t, client, callers)
		}
		const commands = callers * rounds
		t.Logf("%d commands in %d writes", commands, writes.Load()-before)
		require.Less(t, writes.Load()-before, int64(commands/8))
	})
}

// burst has so many goroutines send a command each, all ready to run at once.
func burst(t *testing.T, client rueidis.Client, callers int) {
	var all sync.WaitGroup
	begin := make(chan struct{})
	for range callers {
		all.Go(func() {
			<-begin
			if err := client.Do(t.Context(), client.B().Ping().Build()).Error(); err != nil {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
	close(begin)
	all.Wait()
}
