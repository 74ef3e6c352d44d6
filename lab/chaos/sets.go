package main

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
)

// The guards of the sets that are kept for each lock, side by side. The server that has them is struck by no fault.
const (
	bare     = "bare"     // writes whatever comes
	compared = "compared" // refuses a write if another hold has read since
	fenced   = "fenced"   // refuses an older fencing token than it has seen
)

var guards = []string{bare, compared, fenced}

// errRefused is the error of a write that the guard of a set has refused.
var errRefused = errors.New("refused by the guard")

// setKey is the key of a set.
func setKey(name, guard string) string { return "set:{" + name + "}:" + guard }

// sets are a process' access to the sets. A set is the list of its elements, with commas between.
type sets struct {
	client rueidis.Client
	guard  *redisguard.Guard
}

func openSets(addr string) (*sets, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{addr}, ForceSingleClient: true, DisableCache: true,
	})
	if err != nil {
		return nil, err
	}
	guard, err := redisguard.New(client)
	if err != nil {
		client.Close()
		return nil, err
	}
	return &sets{client, guard}, nil
}

func (s *sets) close() { s.client.Close() }

// guardsOf returns the guards to which the hold can show what they ask for.
func guardsOf(hold *hold) []string {
	var all []string
	for _, guard := range guards {
		if guard == compared && hold.value == "" || guard == fenced && hold.token == 0 {
			continue
		}
		all = append(all, guard)
	}
	return all
}

var (
	readAndNote = rueidis.NewLuaScript(`redis.call('SET', KEYS[2], ARGV[1])
return redis.call('GET', KEYS[1])`)
	writeIfNoted = rueidis.NewLuaScript(`if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2])
return 1`)
)

// read returns a set.
func (s *sets) read(ctx context.Context, name, guard string, hold *hold) (set string, err error) {
	key := setKey(name, guard)
	switch guard {
	case compared:
		set, err = readAndNote.Exec(ctx, s.client, []string{key, key + ":reader"}, []string{hold.value}).ToString()
	case fenced:
		set, err = s.guard.Get(ctx, fenceOf(name, hold), key)
	default:
		set, err = s.client.Do(ctx, s.client.B().Get().Key(key).Build()).ToString()
	}
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return set, refused(err)
}

// write replaces a set.
func (s *sets) write(ctx context.Context, name, guard string, hold *hold, set string) error {
	key := setKey(name, guard)
	switch guard {
	case compared:
		keys, args := []string{key, key + ":reader"}, []string{hold.value, set}
		done, err := writeIfNoted.Exec(ctx, s.client, keys, args).AsBool()
		if err == nil && !done {
			err = errRefused
		}
		return err
	case fenced:
		return refused(s.guard.Set(ctx, fenceOf(name, hold), key, set, 0))
	default:
		return s.client.Do(ctx, s.client.B().Set().Key(key).Value(set).Build()).Error()
	}
}

func fenceOf(name string, hold *hold) fencing.Fence {
	return fencing.Fence{Resource: name, Token: hold.token, Mode: fencing.Write}
}

func refused(err error) error {
	if errors.Is(err, fencing.ErrStale) {
		return errRefused
	}
	return err
}

// with adds an element to a set.
func with(set string, element uint64) string {
	if set != "" {
		set += ","
	}
	return set + strconv.FormatUint(element, 10)
}

// elements returns the elements of a set.
func elements(set string) map[uint64]bool {
	all := map[uint64]bool{}
	for text := range strings.SplitSeq(set, ",") {
		if element, err := strconv.ParseUint(text, 10, 64); err == nil {
			all[element] = true
		}
	}
	return all
}

// newest returns the element that was added last, 0 of an empty set.
func newest(set string) uint64 {
	element, _ := strconv.ParseUint(set[strings.LastIndexByte(set, ',')+1:], 10, 64)
	return element
}
