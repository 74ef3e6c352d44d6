package rwlock_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// speaking is a connection to a server that says this, in pieces, whatever it is asked, and then closes it.
type speaking struct {
	net.Conn
	says []string
}

func (c *speaking) Read(b []byte) (int, error) {
	if len(c.says) == 0 {
		return 0, io.EOF
	}
	n := copy(b, c.says[0])
	if c.says[0] = c.says[0][n:]; c.says[0] == "" {
		c.says = c.says[1:]
	}
	return n, nil
}

func (c *speaking) Write(b []byte) (int, error) { return len(b), nil }

// What a server says before it closes a new connection is the cause. An answer before the connection broke is none.
func TestAServerThatTurnsItsClientsAway(t *testing.T) {
	for name, c := range map[string]struct {
		says  []string
		cause string
	}{
		"too many clients": {[]string{"-ERR max number of clients reached\r\n"}, "ERR max number of clients reached"},
		"in pieces":        {[]string{"-", "ERR max number", " of clients reached\r", "\n"}, "ERR max number of clients"},
		"protected mode":   {[]string{"-DENIED Redis is running in protected mode\r\n"}, "DENIED Redis is running in"},
		"nothing":          {nil, "EOF"},
		"half a line":      {[]string{"-ERR max number of clients re"}, "EOF"},
		"an answer":        {[]string{"-ERR unknown\r\n"}, "EOF"},
		"more than that":   {[]string{"-ERR max number of clients reached\r\n+OK\r\n"}, "EOF"},
		"more, in pieces":  {[]string{"-ERR max number of clients reached\r\n", "+OK\r\n"}, "EOF"},
	} {
		testTurnedAway(t, name, c.says, c.cause, false)
		testTurnedAway(t, name+", writes coalesced by the system", c.says, c.cause, true)
	}
}

func testTurnedAway(t *testing.T, name string, says []string, cause string, coalesced bool) {
	t.Run(name, func(t *testing.T) {
		here, there := net.Pipe()
		defer func() { _ = there.Close() }()
		client, err := rwlock.Dial("server:6379", rueidis.ClientOption{
			DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
				return &speaking{here, slices.Clone(says)}, nil
			},
			DisableTCPNoDelay: coalesced,
		})
		require.NoError(t, err)
		err = client.Do(t.Context(), client.B().Ping().Build()).Error()
		require.ErrorContains(t, err, cause)
		var failed *net.OpError
		if cause == "EOF" {
			require.ErrorIs(t, err, io.EOF)
		} else {
			require.ErrorAs(t, err, &failed)
			require.Equal(t, "dial", failed.Op)
		}
		client.Close()
	})
}
