package testredis

import (
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// ClientOption returns the options of a client for locks: one ordered, always pipelined connection
// without client-side cache, short dial and write times, small buffers.
func ClientOption(addr string) rueidis.ClientOption {
	return rueidis.ClientOption{
		InitAddress:         []string{addr},
		ForceSingleClient:   true,
		DisableCache:        true,
		AlwaysPipelining:    true,
		PipelineMultiplex:   -1,
		Dialer:              net.Dialer{Timeout: time.Second, KeepAlive: time.Second},
		ConnWriteTimeout:    3 * time.Second,
		RingScaleEachConn:   10,
		ReadBufferEachConn:  16 << 10,
		WriteBufferEachConn: 16 << 10,
	}
}

func newClient(t testing.TB, option rueidis.ClientOption) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatalf("client of %s: %v", option.InitAddress[0], err)
	}
	t.Cleanup(client.Close)
	return client
}
