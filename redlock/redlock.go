package redlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/joined"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/rwlock"
)

// isQuorumSize reports whether so many masters make a quorum. An even number outlives no more failures than the odd one
// below it, and two outlive none.
func isQuorumSize(masters int) bool { return masters >= 3 && masters%2 == 1 }

const quorumSize = "must be an odd number of at least 3"

// New returns a Locker over a quorum of masters: an odd number, at least three, of servers that know nothing of each
// other. Any minority of them may be dead, slow, frozen, emptied, or not in order. New sends nothing; that the masters
// are distinct servers, no replicas, no nodes of a cluster, and set up by the same rules as other clients' is checked
// by the first acquisition. Where that leaves no quorum, or at the first start of a set, its error matches
// rwlock.ErrOption and says which and why. The clients stay the caller's.
//
// The first start of a set needs all of its masters to vote at once. While one does not answer, the others grant
// nothing for the longest TTL, 2 s at the least: servers without a marker may have been members that lost their data at
// different times, and a lease may stand on the one that does not answer.
func New(masters []rueidis.Client, opts ...rwlock.Option) (*rwlock.Locker, error) {
	if err := checkMasters(masters); err != nil {
		return nil, err
	}
	all := settings.LockerOption(func(l *settings.Locker) { l.Masters = masters })
	return rwlock.New(masters[0], append([]rwlock.Option{all}, opts...)...)
}

func checkMasters(masters []rueidis.Client) error {
	refused := func(rule string) error {
		return &rwlock.OptionError{Option: "masters", Value: len(masters), Rule: rule}
	}
	if !isQuorumSize(len(masters)) {
		return refused(quorumSize)
	}
	seen := make(map[rueidis.Client]int)
	for i, m := range masters {
		if m == nil {
			return refused(fmt.Sprintf("master %d must not be nil", i))
		}
		if first, twice := seen[m]; twice {
			return refused(fmt.Sprintf("masters %d and %d are the same client", first, i))
		}
		if m.Mode() == rueidis.ClientModeCluster {
			return refused(fmt.Sprintf("master %d is the client of a cluster, which shares out the names", i))
		}
		seen[m] = i
	}
	return nil
}

// Dial returns a client for each address, tuned as rwlock.Dial does it: an odd number of distinct addresses, at least
// three, or the error is an *rwlock.OptionError before anybody is dialled. It succeeds while a minority is down: their
// clients connect when they are back. With a majority down the error names each and matches rwlock.ErrNoQuorum, and
// with any error no client is left open. The clients are the caller's to close, also when New refuses them.
func Dial(addrs []string, base rueidis.ClientOption) ([]rueidis.Client, error) {
	if err := checkAddrs(addrs, base); err != nil {
		return nil, err
	}
	clients := make([]rueidis.Client, len(addrs))
	var failed []rwlock.NodeError
	for i, addr := range addrs {
		client, err := rwlock.Dial(addr, base)
		clients[i] = client
		switch {
		case client == nil: // refused: one that does not answer yet has a client
			return nil, joined.Errors(&rwlock.NodeError{Index: i, Addr: addr, Err: err}, closeAll(clients))
		case err != nil:
			failed = append(failed, rwlock.NodeError{Index: i, Addr: addr, Err: causeOf(err)})
		}
	}
	need := len(addrs)/2 + 1
	if got := len(addrs) - len(failed); got < need {
		return nil, joined.Errors(&rwlock.QuorumError{Need: need, Got: got, Nodes: failed}, closeAll(clients))
	}
	return clients, nil
}

// causeOf returns what rwlock.Dial says of its one server.
func causeOf(err error) error {
	if of, ok := errors.AsType[*rwlock.QuorumError](err); ok {
		return of.Nodes[0].Err
	}
	return err
}

// checkAddrs finds out what New would refuse of the clients, as far as the addresses tell.
func checkAddrs(addrs []string, base rueidis.ClientOption) error {
	refused := func(value any, rule string) error {
		return &rwlock.OptionError{Option: "addrs", Value: value, Rule: rule}
	}
	if !isQuorumSize(len(addrs)) {
		return refused(len(addrs), quorumSize)
	}
	seen := make(map[string]int)
	for i, addr := range addrs {
		rule := settings.AddressRule(addr, base)
		if addr == "" {
			rule = "must not be empty"
		}
		if rule != "" {
			return refused(addr, fmt.Sprintf("address %d %s", i, rule))
		}
		if first, twice := seen[addr]; twice {
			return refused(addr, fmt.Sprintf("addresses %d and %d are the same", first, i))
		}
		seen[addr] = i
	}
	return nil
}

func closeAll(clients []rueidis.Client) error {
	for _, c := range clients {
		if c != nil {
			c.Close()
		}
	}
	return nil
}

// WithNodeTimeout bounds how long a single master is waited for, by default a twentieth of the TTL within 50 ms to
// 1 s. One that does not answer in time is asked again while the acquisition waits. rwlock.New refuses it.
func WithNodeTimeout(d time.Duration) rwlock.Option {
	return settings.LockerOption(func(l *settings.Locker) { l.NodeTimeout = l.OfSeveral("WithNodeTimeout", d) })
}

// WithDrift sets how far the clocks of this machine and of a master may drift apart, as a part of the time that passes:
// 0.01 by default. Two milliseconds are added for rounding.
func WithDrift(factor float64) rwlock.Option {
	return settings.LockerOption(func(l *settings.Locker) { l.Drift = factor })
}

// WithQuarantine sets for how long a master that may have lost its data has no vote: the longest TTL that any client of
// these masters uses, the locker's own by default. It lasts 2 s at the least, whatever is set, and begins when a client
// first finds that the master has restarted or has lost its data. All clients must agree on it, and on the masters
// themselves: one that counts on another TTL or number of masters is refused, and one that names another server in the
// place of a master gets no vote there. To change either, or to put another server in the place of a master, stop all
// clients for that long, delete the key PREFIX:master on every server of the new list, and start them with the new
// setting. A master that was down meanwhile has no vote until the key is deleted there too. rwlock.New refuses it.
func WithQuarantine(d time.Duration) rwlock.Option {
	return settings.LockerOption(func(l *settings.Locker) { l.Quarantine = l.OfSeveral("WithQuarantine", d) })
}
