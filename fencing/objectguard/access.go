package objectguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/fencing"
)

// object is an object as it is, or as it is going to be.
type object struct {
	header
	data       []byte
	generation string // what it was read as
	changed    bool   // it has to be written
}

func (o object) raised(f fencing.Fence) object {
	seen := o.registers().Raise(f)
	o.changed = o.changed || seen != o.registers()
	o.MaxRead, o.MaxWrite = seen.MaxRead, seen.MaxWrite
	return o
}

func (o object) with(data []byte) object {
	o.data, o.Deleted, o.changed = data, false, true
	return o
}

type rule func(fencing.Registers, fencing.Fence) error

// access is every access: it reads, checks, changes and writes until nobody has
// come in between, and returns the object as it then is.
func (g *Guard) access(
	ctx context.Context, f fencing.Fence, key string, check rule, change func(object) (object, error),
) (object, error) {
	if err := f.Validate(); err != nil {
		return object{}, err
	}
	for {
		current, err := g.load(ctx, key, f.Resource)
		if err != nil {
			return object{}, err
		}
		if err := check(current.registers(), f); err != nil {
			return object{}, err
		}
		next, err := change(current)
		if err != nil {
			return object{}, err
		}
		if !next.changed {
			return next, nil
		}
		if err := g.store(ctx, key, next); !errors.Is(err, ErrConflict) {
			return next, err
		}
	}
}

func (g *Guard) load(ctx context.Context, key, lock string) (object, error) {
	content, generation, err := g.bucket.Get(ctx, key)
	if err != nil {
		return object{}, failed(key, err)
	}
	if generation == "" {
		return object{header: header{Lock: lock, Deleted: true}}, nil
	}
	h, data, err := open(content)
	if err != nil {
		return object{}, failed(key, err)
	}
	if h.Lock != lock {
		return object{}, fmt.Errorf("%w: %q belongs to %q, not to %q", ErrLock, key, h.Lock, lock)
	}
	if h.Deleted {
		data = nil
	}
	return object{header: h, data: data, generation: generation}, nil
}

// store writes o if the object is still what o was read as. Where the bucket's
// answer does not say whether it did, the object does, as long as it is ours: the
// id is in no other write. If it is not, ours may still be on its way, or was
// overwritten already.
func (g *Guard) store(ctx context.Context, key string, o object) error {
	content, id, err := seal(o.header, o.data)
	if err != nil {
		return failed(key, err)
	}
	err = g.bucket.PutIf(ctx, key, content, o.generation)
	if err == nil || errors.Is(err, ErrConflict) {
		return err
	}
	if now, failure := g.load(ctx, key, o.Lock); failure == nil && now.ID == id {
		return nil
	}
	return fmt.Errorf("objectguard: %q: it is not known whether the write took place: %w", key, err)
}
