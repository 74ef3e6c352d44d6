package peer

import (
	"context"

	"github.com/redis/rueidis"
)

// floorLua is the minimal cost of a lock with a token and its own clock: four commands in one script, two in another.
// It does not exclude other holders.
type floorLua struct{ *floor }

func openFloorLua(o Options) (Peer, error) {
	f, err := openFloor(o)
	if err != nil {
		return nil, err
	}
	return floorLua{f}, nil
}

var (
	fourCommands = rueidis.NewLuaScript(`redis.call('TIME')
redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('INCR', KEYS[2])`)
	twoCommands = rueidis.NewLuaScript(`redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
return redis.call('DEL', KEYS[1])`)
)

func (f floorLua) Lock(ctx context.Context, name string) (Hold, error) {
	id, ctx := f.id(), f.context(ctx)
	err := f.everywhere(func(c rueidis.Client) error {
		return fourCommands.Exec(ctx, c, []string{name, name + ":token"}, []string{id, f.px}).Error()
	})
	if err != nil {
		return nil, err
	}
	return &floorHold{f.floor, name, id, countDown}, nil
}

func countDown(ctx context.Context, c rueidis.Client, name, id string) error {
	return twoCommands.Exec(ctx, c, []string{name}, []string{id}).Error()
}
