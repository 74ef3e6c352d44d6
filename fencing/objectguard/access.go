package objectguard

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/joined"
)

// object is an object as it was read, or as it is to be written.
type object struct {
	header
	data       []byte
	generation string            // the generation that was read
	attributes map[string]string // the attributes that were read
	changed    bool              // it has to be written
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

// access is the operation of a Guard's method on an object.
type access struct {
	check  func(fencing.Registers, fencing.Fence) error
	change func(object) (object, error)
	adopts bool // accepts an object without a header as the data of a guarded one
}

// do is the common path of all accesses: it reads, checks, changes and writes, and repeats that until no other access
// has intervened. It returns the resulting object.
func (g *Guard) do(ctx context.Context, f fencing.Fence, key string, a access) (object, error) {
	if g.bucket == nil {
		return object{}, errNoBucket
	}
	if err := f.Validate(); err != nil {
		return object{}, err
	}
	var p pace
	for {
		current, err := g.load(ctx, key, f.Resource, a.adopts)
		if err != nil {
			return object{}, err
		}
		if err := a.check(current.registers(), f); err != nil {
			return object{}, err
		}
		next, err := a.change(current)
		if err != nil {
			return object{}, err
		}
		if !next.changed {
			return next, nil
		}
		if err = g.store(ctx, key, next, &p); !errors.Is(err, ErrConflict) {
			return next, failed(key, joined.WithCause(ctx, err))
		}
		if stop := p.wait(ctx, current.generation); stop != nil {
			return object{}, failed(key, fmt.Errorf("%w: %w", stop, err))
		}
	}
}

func (g *Guard) load(ctx context.Context, key, lock string, adopts bool) (object, error) {
	stored, err := g.bucket.Get(ctx, key)
	if err != nil {
		return object{}, failed(key, joined.WithCause(ctx, err))
	}
	if stored.Generation == "" {
		return object{header: header{Lock: lock, Deleted: true}}, nil
	}
	h, data, err := open(stored.Content)
	o := object{header: h, data: data, generation: stored.Generation, attributes: stored.Attributes}
	if err != nil && adopts {
		o.header, o.data, o.changed = header{Lock: lock}, stored.Content, true
		return o, nil
	}
	if err != nil {
		return object{}, failed(key, err)
	}
	if h.Lock != lock {
		return object{}, fmt.Errorf("%w: %q belongs to %q, not to %q", ErrLock, key, h.Lock, lock)
	}
	if h.Deleted {
		o.data = nil
	}
	return o, nil
}

// store writes o if the object still has the generation that o was read as. If the bucket's answer does not say whether
// the write took place, the object does, as long as it holds this write: the id is in no other write. While the object
// still has the generation that was read, the same content is sent again: if the first request arrives after all, one
// of the two finds its condition broken. Once the object has neither that generation nor this id, this write may have
// taken place and been overwritten.
func (g *Guard) store(ctx context.Context, key string, o object, p *pace) error {
	content, id, err := seal(o.header, o.data)
	if err != nil {
		return err
	}
	put := Object{Content: content, Generation: o.generation, Attributes: o.attributes}
	var doubt error // the error of the last call that may have stored it
	for {
		err := g.bucket.PutIf(ctx, key, put)
		refused, conflict := errors.Is(err, ErrRefused), errors.Is(err, ErrConflict)
		if err == nil || (refused || conflict) && doubt == nil {
			return err
		}
		if !refused && !conflict {
			doubt = err
		}
		now, failure := g.load(ctx, key, o.Lock, false)
		if failure == nil && now.ID == id {
			return nil
		}
		overwritten := failure == nil && now.generation != o.generation
		if refused || overwritten || p.wait(ctx, o.generation) != nil {
			return fmt.Errorf("%w: %w", ErrUnknown, doubt)
		}
	}
}
