package peer

import (
	"context"

	"github.com/redis/rueidis"
)

// floorSet is the smallest possible lock on Redis: SET NX PX, and a script that deletes the key if it holds the
// caller's own value. It does not wait, and has no queue, no token, no renewal.
type floorSet struct{ *floor }

func openFloorSet(o Options) (Peer, error) {
	f, err := openFloor(o)
	if err != nil {
		return nil, err
	}
	return floorSet{f}, nil
}

var compareAndDelete = rueidis.NewLuaScript(
	`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

func (f floorSet) Lock(ctx context.Context, name string) (Hold, error) {
	id, ctx := f.id(), f.context(ctx)
	err := f.everywhere(func(c rueidis.Client) error {
		err := c.Do(ctx, c.B().Arbitrary("SET", name, id, "NX", "PX", f.px).Build()).Error()
		if rueidis.IsRedisNil(err) {
			return errTaken
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return &floorHold{f.floor, name, id, deleteOwn}, nil
}

func deleteOwn(ctx context.Context, c rueidis.Client, name, id string) error {
	return compareAndDelete.Exec(ctx, c, []string{name}, []string{id}).Error()
}
