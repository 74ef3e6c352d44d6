package redlock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/rwlock"
)

// isQuorumSize reports whether this number of masters can make a quorum. An even number survives no more failures than
// the odd number below it, and two masters survive none.
func isQuorumSize(masters int) bool { return masters >= 3 && masters%2 == 1 }

const quorumSize = "must be an odd number of at least 3"

// New returns a Locker over a quorum of masters: an odd number, at least three, of servers that do not know each other.
// The client of a Sentinel group is refused: in a failover two clients may count on two of its servers for one vote.
// Any minority of them may be dead, slow, frozen, emptied, or not in order. New sends nothing. The first acquisition
// checks that the masters are distinct servers, that none is a replica or a node of a cluster, and that they are set up
// by the same rules as for other clients. If too few masters pass to make a quorum, or one fails at the first start of
// a set, its error matches rwlock.ErrOption and names the master and the reason. The caller still owns the clients.
//
// All clients must be given the same list of masters, in any order. At the first start of a set its masters grant
// nothing for the longest TTL, and at least for 2 s: TryLock then fails with an *rwlock.AbstainError that says for how
// long, and Lock waits. docs/deployments.md has more under "The servers of a quorum".
func New(masters []rueidis.Client, opts ...rwlock.Option) (*rwlock.Locker, error) {
	if err := checkMasters(masters); err != nil {
		return nil, err
	}
	all := settings.LockerOption(func(l *settings.Locker) { l.Clients = masters })
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
		switch m.Mode() {
		case rueidis.ClientModeCluster:
			return refused(fmt.Sprintf("master %d is the client of a cluster, which shares out the names", i))
		case rueidis.ClientModeSentinel:
			// In a failover two clients may count on two servers of the group for one vote.
			return refused(fmt.Sprintf("master %d is the client of a Sentinel group: name single servers", i))
		}
		seen[m] = i
	}
	return nil
}

// Open returns a Locker over a quorum of masters with clients of its own, made as by Dial; Close closes all of them.
// Each address is host:port or a URL, as for rwlock.Open, of one server or of several: redis://a:6379,b:6379,c:6379. A
// server need not answer yet: Ping names those that do not, and matches rwlock.ErrNoQuorum if too few do. Open begins
// the check of the masters in the background, and the first start of a set with it: new masters grant nothing for the
// longest TTL from then on. It goes on until every server is in order, so a program may wait for Ping before its first
// lock. New says more, and Found spares that.
func Open(addrs []string, opts ...rwlock.Option) (*rwlock.Locker, error) {
	clients, err := open(addrs)
	if err != nil {
		return nil, err
	}
	begins := settings.LockerOption(func(l *settings.Locker) { l.Owned, l.Begin = true, true })
	locker, err := New(clients, append([]rwlock.Option{begins}, opts...)...)
	if err != nil {
		closeAll(clients)
		return nil, err
	}
	return locker, nil
}

// open makes a client of each address or URL.
func open(addrs []string) ([]rueidis.Client, error) {
	var options []rueidis.ClientOption
	for i, addr := range addrs {
		servers, rule := transport.ReadAddress(addr, "")
		if servers.Cluster || servers.IsSentinel() {
			rule = "must be the URL of servers, each of which decides alone"
		}
		if rule != "" {
			return nil, &rwlock.OptionError{Option: "addrs", Value: i, Rule: rule}
		}
		for _, one := range servers.Option.InitAddress {
			base := servers.Option
			base.InitAddress = []string{one}
			options = append(options, base)
		}
	}
	return dial(options)
}

// Found makes new masters a set. It takes a second, and then the first lock over them is granted at once, and not after
// the longest TTL. It is for a first deployment, and for tests over fresh servers. The options that the lockers of
// these masters will have belong here too: WithPrefix, and WithTTL or WithQuarantine. Nothing else calls it.
//
// The caller gives its word that the masters are new: none has ever granted a lock under this prefix, and none loses
// data before Found returns. Masters that have lost their data look the same. If the word is false, a lock that they
// had granted may be granted again while its holder works: two holders at once, for at most the TTL of the first.
// Their tokens are in order all the same, so a guard refuses the first one once it has seen the second.
//
// Found fails if a master does not answer, has a marker, or has any key of the prefix: a set that exists stays as it
// is. After another error, such as the end of ctx, the masters may be founded in part: New and Open go on from there,
// and the rest abstains for the longest TTL.
func Found(ctx context.Context, addrs []string, opts ...rwlock.Option) error {
	clients, err := open(addrs)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	if err := checkMasters(clients); err != nil {
		return err
	}
	s := settings.Default()
	s.Clients = clients
	if invalid := settings.Apply(&s, opts); invalid != nil {
		return (*rwlock.OptionError)(invalid)
	}
	if err := engine.Found(ctx, s.Engine()); err != nil {
		return fmt.Errorf("redlock: the masters are not founded: %w", err)
	}
	return nil
}

// Dial returns a client for each address, tuned as by rwlock.Dial. It needs an odd number of distinct addresses, at
// least three; otherwise the error is an *rwlock.OptionError, before any connection is opened. The client of a server
// that is down, or refuses the password, connects once the server accepts it. With any error no client is left open.
// The caller has to close the clients, also if New refuses them.
func Dial(addrs []string, base rueidis.ClientOption) ([]rueidis.Client, error) {
	options := make([]rueidis.ClientOption, len(addrs))
	for i, addr := range addrs {
		options[i] = base
		options[i].InitAddress = []string{addr}
	}
	return dial(options)
}

// dial makes a client of each, whose options name one server.
func dial(options []rueidis.ClientOption) ([]rueidis.Client, error) {
	if err := checkAddrs(options); err != nil {
		return nil, err
	}
	clients := make([]rueidis.Client, len(options))
	for i, base := range options {
		client, err := rwlock.Dial(base.InitAddress[0], base)
		if err != nil {
			closeAll(clients[:i])
			return nil, &rwlock.NodeError{Index: i, Addr: base.InitAddress[0], Err: err}
		}
		clients[i] = client
	}
	return clients, nil
}

// checkAddrs refuses the addresses that New would refuse as clients, as far as the addresses show it.
func checkAddrs(options []rueidis.ClientOption) error {
	refused := func(value any, rule string) error {
		return &rwlock.OptionError{Option: "addrs", Value: value, Rule: rule}
	}
	if !isQuorumSize(len(options)) {
		return refused(len(options), quorumSize)
	}
	seen := make(map[string]int)
	for i, base := range options {
		addr := base.InitAddress[0]
		rule := transport.AddressRule(addr, base)
		if addr == "" {
			rule = "must not be empty"
		}
		if rule != "" {
			return refused(transport.Shown(addr), fmt.Sprintf("address %d %s", i, rule))
		}
		if first, twice := seen[addr]; twice {
			return refused(addr, fmt.Sprintf("addresses %d and %d are the same", first, i))
		}
		seen[addr] = i
	}
	return nil
}

func closeAll(clients []rueidis.Client) {
	for _, c := range clients {
		c.Close()
	}
}

// WithNodeTimeout bounds the wait for a single master, by default a twentieth of the TTL within 50 ms to 1 s. A master
// that does not answer in time is asked again while the acquisition waits. rwlock.New refuses this option.
func WithNodeTimeout(d time.Duration) rwlock.Option {
	return settings.LockerOption(func(l *settings.Locker) { l.NodeTimeout = l.OfSeveral("WithNodeTimeout", d) })
}

// WithDrift sets how far the clocks of this machine and of a master may drift apart, as a fraction of the elapsed time:
// 0.01 by default. Two milliseconds are added for rounding.
func WithDrift(factor float64) rwlock.Option {
	return settings.LockerOption(func(l *settings.Locker) { l.Drift = factor })
}

// WithQuarantine sets how long a master that may have lost its data has no vote: the longest TTL that any client of
// these masters uses, at most 24 h and at least 2 s, by default the locker's own. All clients must agree on it and on
// the masters. docs/deployments.md says how to change either. rwlock.New refuses this option.
func WithQuarantine(d time.Duration) rwlock.Option {
	return settings.LockerOption(func(l *settings.Locker) { l.LongestTTL = l.OfSeveral("WithQuarantine", d) })
}
