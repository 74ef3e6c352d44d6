package rwlock

import (
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/transport"
)

// Open returns a Locker with a client of its own, made as by Dial; Close closes both. addr is host:port, or a URL as
// REDIS_URL often has it: redis://, rediss:// or unix://, read by rueidis.ParseURL, also for a Cluster and sentinels.
// The server need not answer yet: Ping says whether it does, and until then a Lock waits, silently without WithLogger.
// An addr or an option that breaks a rule is an *OptionError. For a Cluster or sentinels none of which answers, the
// error is a *QuorumError.
func Open(addr string, opts ...Option) (*Locker, error) {
	base, rule := transport.ReadAddress(addr)
	if rule != "" {
		return nil, &OptionError{"Open", "addr", rule}
	}
	one := ""
	if transport.IsOneServer(base) {
		one = base.InitAddress[0]
	}
	client, err := Dial(one, base)
	if err != nil {
		return nil, err
	}
	locker, err := New(client, append([]Option{settings.Owned}, opts...)...)
	if err != nil {
		client.Close()
		return nil, err
	}
	return locker, nil
}
