package redisguard

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Get returns the string at key. It raises the register of f's mode: once a reader has read, older writers are refused;
// once a writer has read, older readers are too. For a key that does not exist it returns rueidis.Nil, see
// [rueidis.IsRedisNil].
func (g *Guard) Get(ctx context.Context, f fencing.Fence, key string) (string, error) {
	reply, err := g.Do(ctx, f, g.builtin.get, []string{key}, nil)
	if err != nil {
		return "", err
	}
	if reply.IsNil() {
		return "", rueidis.Nil // bare, since IsRedisNil does not unwrap
	}
	value, err := reply.ToString()
	if err != nil {
		return "", failed(key, err)
	}
	return value, nil
}

// Set stores the string at key, for ttl or, with a ttl of 0, without expiry. It needs a [fencing.Write] fence, as HSet
// and Del do; a read fence is refused with an error that matches [fencing.ErrMissing].
func (g *Guard) Set(ctx context.Context, f fencing.Fence, key, value string, ttl time.Duration) error {
	px, err := milliseconds(ttl)
	if err != nil {
		return err
	}
	return g.write(ctx, f, g.builtin.set, key, value, px)
}

// HSet sets fields of the hash at key, at least one.
func (g *Guard) HSet(ctx context.Context, f fencing.Fence, key string, fields map[string]string) error {
	if len(fields) == 0 {
		return badKey(key, "no fields to set")
	}
	args := make([]string, 0, 2*len(fields))
	for name, value := range fields {
		args = append(args, name, value)
	}
	return g.write(ctx, f, g.builtin.hset, key, args...)
}

// Del removes key, of any type; a missing key is not an error.
func (g *Guard) Del(ctx context.Context, f fencing.Fence, key string) error {
	return g.write(ctx, f, g.builtin.del, key)
}

// Derive stores, as Set does, a value that f's holder derived from a read: a cache entry. It is accepted while nothing
// newer has been written and raises no register, so readers never refuse each other's entries. An entry is never out of
// date only if each writer deletes it, with Del, before it writes to the store that is cached.
func (g *Guard) Derive(ctx context.Context, f fencing.Fence, key, value string, ttl time.Duration) error {
	px, err := milliseconds(ttl)
	if err != nil {
		return err
	}
	_, err = g.run(ctx, ruleDerived, g.builtin.set, []string{key}, []string{value, px}, f)
	return err
}

func (g *Guard) write(ctx context.Context, f fencing.Fence, script *Script, key string, args ...string) error {
	if f.Mode == fencing.Read {
		return fmt.Errorf("%w for writing %q: a read lock does not allow it", fencing.ErrMissing, f.Resource)
	}
	_, err := g.Do(ctx, f, script, []string{key}, args)
	return err
}

func milliseconds(ttl time.Duration) (string, error) {
	if ttl < 0 || 0 < ttl && ttl < time.Millisecond {
		return "", &fencing.MalformedError{
			What: "TTL", Input: ttl.String(), Reason: "it must be 0 or at least 1ms",
		}
	}
	return strconv.FormatInt(ttl.Milliseconds(), 10), nil
}
