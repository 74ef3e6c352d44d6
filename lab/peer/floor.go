package peer

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redis/rueidis"
)

// floor is the common part of the floors: clients, and an id for each hold.
type floor struct {
	clients   []rueidis.Client
	automatic bool
	px        string
	ids       atomic.Int64
}

func openFloor(o Options) (*floor, error) {
	clients, err := dial(o)
	if err != nil {
		return nil, err
	}
	return &floor{clients: clients, automatic: o.Automatic, px: strconv.FormatInt(o.TTL.Milliseconds(), 10)}, nil
}

// id has the length of a ULID.
func (f *floor) id() string {
	digits := strconv.FormatInt(f.ids.Add(1), 10)
	return "00000000000000000000000000"[len(digits):] + digits
}

func (f *floor) Close() error {
	closeAll(f.clients)
	return nil
}

// context returns the context of a request. In the automatic mode it does not end: the client would leave the mode.
func (f *floor) context(ctx context.Context) context.Context {
	if f.automatic {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// everywhere runs a call on all masters in parallel, on the last one in the goroutine of the caller.
func (f *floor) everywhere(call func(rueidis.Client) error) error {
	last := len(f.clients) - 1
	if last == 0 {
		return call(f.clients[0])
	}
	errs := make([]error, len(f.clients))
	var all sync.WaitGroup
	for i, c := range f.clients[:last] {
		all.Go(func() { errs[i] = call(c) })
	}
	errs[last] = call(f.clients[last])
	all.Wait()
	return errors.Join(errs...)
}

// floorHold is a hold that is released by one call for each master.
type floorHold struct {
	floor    *floor
	name, id string
	free     func(context.Context, rueidis.Client, string, string) error
}

func (h *floorHold) Release(ctx context.Context) error {
	ctx = h.floor.context(ctx)
	return h.floor.everywhere(func(c rueidis.Client) error { return h.free(ctx, c, h.name, h.id) })
}
