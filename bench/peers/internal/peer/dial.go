package peer

import (
	"errors"

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
		client, err := rwlock.Dial(addr, option)
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

func closeAll(clients []rueidis.Client) {
	for _, c := range clients {
		c.Close()
	}
}

var errTaken = errors.New("the name is taken")
