package peer

import (
	"errors"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/rwlock"
)

// dial connects to every master as fencelock's own clients do, so that no library has a better client than another.
func dial(o Options) ([]rueidis.Client, error) {
	var clients []rueidis.Client
	option := o.At
	option.ClientName = o.ClientName
	addrs := o.Addrs
	if len(addrs) == 0 {
		addrs = []string{""}
	}
	for _, addr := range addrs {
		dialOne := rwlock.Dial
		if o.Automatic {
			dialOne = dialAutomatic
		}
		client, err := dialOne(addr, option)
		if client != nil {
			clients = append(clients, client)
		}
		if err != nil {
			closeAll(clients)
			return nil, err
		}
	}
	return clients, nil
}

// dialAutomatic is rwlock.Dial with rueidis' automatic mode: a command that is alone is written and its reply is read
// by the caller's own goroutine, unless its context can end.
func dialAutomatic(addr string, base rueidis.ClientOption) (rueidis.Client, error) {
	if addr != "" {
		base.InitAddress, base.ForceSingleClient = []string{addr}, true
	}
	base.PipelineMultiplex, base.DisableCache = -1, true
	base.Dialer.Timeout, base.Dialer.KeepAlive = time.Second, time.Second
	base.ConnWriteTimeout = 3 * time.Second
	base.RingScaleEachConn = 11
	base.ReadBufferEachConn, base.WriteBufferEachConn = 16<<10, 16<<10
	return rueidis.NewClient(base)
}

func closeAll(clients []rueidis.Client) {
	for _, c := range clients {
		c.Close()
	}
}

var errTaken = errors.New("the name is taken")
