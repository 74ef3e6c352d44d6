package objectguard

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/errs"
)

var (
	// ErrLock reports that an object belongs to another lock.
	ErrLock = errors.New("objectguard: the object belongs to another lock")

	// ErrUnknown reports that it is not known whether an access took place: the store did not answer, or not clearly,
	// until ctx ended or the guard gave up; or so many have overtaken the access that the object does not tell.
	ErrUnknown = errors.New("objectguard: it is not known whether the write took place")
)

// Guard checks fences against the registers in the objects of a bucket. It holds no state and is safe for concurrent
// use.
//
// A method that refuses an access returns an error that matches [fencing.ErrStale], [fencing.ErrMissing] (no token, or
// a [fencing.Read] fence for a write), [fencing.ErrMalformed], [ErrLock] or [ErrUnguarded]; if the store refuses the
// access, the error matches [ErrRefused]. An error that matches [ErrUnknown] leaves it open whether the access took
// place. After any other error nothing was stored.
//
// While other accesses change the object, a method begins anew, with growing pauses; each change is an access that
// succeeded. This ends when ctx does, or when more than 31 others have changed the object during one attempt to change
// its data, with [ErrUnknown]. If the store fails, or reports conflicts although the object is unchanged, a
// method gives up after ten attempts, some seconds, with [ErrUnknown]: a copy of the request may be under way.
//
// The zero value, and the guard of a nil bucket, refuse every access.
type Guard struct{ bucket Bucket }

var (
	errNoBucket = errors.New("objectguard: the guard has no bucket, make it with New")
	errNoChange = errors.New("objectguard: the change is nil")
)

// New returns a guard of the objects in bucket.
func New(bucket Bucket) *Guard { return &Guard{bucket: bucket} }

// Read returns the object's data after raising the register of f's mode: once a reader has read, older writers are
// refused; once a writer has read, older readers are too. For an object that does not exist the error matches
// [fs.ErrNotExist], and its register is raised as well.
func (g *Guard) Read(ctx context.Context, f fencing.Fence, key string) ([]byte, error) {
	o, err := g.do(ctx, f, key, access{check: fencing.Registers.Check})
	if err != nil {
		return nil, err
	}
	if o.Deleted {
		return nil, notExist(key)
	}
	return o.data, nil
}

// Claim raises the register of f's mode and does nothing else: call it before the first read that bypasses the guard.
func (g *Guard) Claim(ctx context.Context, f fencing.Fence, key string) error {
	_, err := g.Read(ctx, f, key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// Write stores data under a [fencing.Write] fence.
func (g *Guard) Write(ctx context.Context, f fencing.Fence, key string, data []byte) error {
	return g.Update(ctx, f, key, func([]byte) ([]byte, error) { return data, nil })
}

// Update replaces the data by the result of change, which gets nil if there is no object, in one atomic step under a
// [fencing.Write] fence. change must not keep or modify its argument; it is called again if the object has changed in
// the meantime. If change returns an error, nothing is stored and Update returns that error.
func (g *Guard) Update(
	ctx context.Context, f fencing.Fence, key string, change func(data []byte) ([]byte, error),
) error {
	if change == nil {
		return errNoChange
	}
	return g.write(ctx, f, key, func(o object) (object, error) {
		data, err := change(o.data)
		if err != nil {
			return object{}, err
		}
		return o.with(data), nil
	})
}

// Delete removes the data under a [fencing.Write] fence. The object stays, with its registers alone, so that a later
// stale write is still refused.
func (g *Guard) Delete(ctx context.Context, f fencing.Fence, key string) error {
	return g.write(ctx, f, key, func(o object) (object, error) {
		o.data, o.Deleted, o.changed = nil, true, true
		return o, nil
	})
}

// Derive stores a value that was derived from a read, such as a rendered page: it is accepted while nothing newer has
// been written to this object, it raises no register, and newer readers do not matter.
//
// It compares with the registers of this object. So a writer that changes the source data must first delete this
// object, under the same lock.
func (g *Guard) Derive(ctx context.Context, f fencing.Fence, key string, data []byte) error {
	_, err := g.do(ctx, f, key, access{
		check:  fencing.Registers.CheckDerived,
		change: func(o object) (object, error) { return o.with(data), nil },
	})
	return err
}

// Seen returns the registers of an object, zero if it was never claimed.
func (g *Guard) Seen(ctx context.Context, key string) (fencing.Registers, error) {
	if g.bucket == nil {
		return fencing.Registers{}, errNoBucket
	}
	stored, err := g.bucket.Get(ctx, key)
	if err != nil || stored.Generation == "" {
		return fencing.Registers{}, failed(key, err)
	}
	_, seen, err := Open(stored.Content)
	return seen, failed(key, err)
}

func (g *Guard) write(ctx context.Context, f fencing.Fence, key string, change func(object) (object, error)) error {
	if err := allowed(f, key); err != nil {
		return err
	}
	_, err := g.do(ctx, f, key, access{
		check: fencing.Registers.Check,
		change: func(o object) (object, error) {
			next, err := change(o)
			return next.raised(f), err
		},
	})
	return err
}

// allowed refuses a fence that does not permit writing.
func allowed(f fencing.Fence, key string) error {
	if err := f.Validate(); err != nil {
		return err
	}
	if f.Mode != fencing.Write {
		return fmt.Errorf("%w for writing %q: %v", fencing.ErrMissing, key, f)
	}
	return nil
}

func notExist(key string) error {
	return fmt.Errorf("objectguard: %q: %w", key, fs.ErrNotExist)
}

func failed(key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("objectguard: %q: %w", key, err)
}

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
	change func(object) (object, error) // nil: the access raises the register of its fence only, and may do so again
	adopts bool                         // accepts an object without a header as the data of a guarded one
}

// errOvertaken is the error of an access that stored nothing because the object has changed.
var errOvertaken = fmt.Errorf("%w: another access came before", ErrConflict)

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
		next := current.raised(f)
		if a.change != nil {
			if next, err = a.change(current); err != nil {
				return object{}, err
			}
		}
		if !next.changed {
			return next, nil
		}
		if err = g.store(ctx, key, next, a, &p); !errors.Is(err, errOvertaken) {
			return next, failed(key, errs.WithCause(ctx, err))
		}
		if stop := p.wait(ctx, current.generation); stop != nil {
			return object{}, failed(key, fmt.Errorf("%w: %w", stop, err))
		}
	}
}

func (g *Guard) load(ctx context.Context, key, lock string, adopts bool) (object, error) {
	stored, err := g.bucket.Get(ctx, key)
	if err != nil {
		return object{}, failed(key, errs.WithCause(ctx, err))
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

// store writes o if the object still has the generation that o was read as. Only success, and a refusal of the first
// call, say by themselves what became of the write. Any other answer may be lost, or that to a second copy of the
// request, which a gateway has sent while the store works on the first. So the object decides: it names its last
// writes by their ids.
//
// While the object still has the generation that was read, the same content is sent again: if the first request arrives
// after all, one of the two finds its condition broken. Once it has another generation, this write has taken place, or
// it never will.
func (g *Guard) store(ctx context.Context, key string, o object, a access, p *pace) error {
	content, id, err := seal(o.header, o.data)
	if err != nil {
		return err
	}
	put := Object{Content: content, Generation: o.generation, Attributes: o.attributes}
	var doubt error // the last answer after which a copy may be stored, now or later
	for {
		err := g.bucket.PutIf(ctx, key, put)
		refused := errors.Is(err, ErrRefused)
		if err == nil || refused && doubt == nil {
			return err
		}
		if !refused {
			doubt = err
		}
		now, failure := g.load(ctx, key, o.Lock, a.adopts)
		if failure == nil && now.names(id) {
			return nil
		}
		changed := failure == nil && now.generation != o.generation
		if changed && (a.change == nil || now.lacks(o.header)) {
			return errOvertaken
		}
		if changed || refused {
			return unknown(doubt, nil)
		}
		if stop := p.wait(ctx, o.generation); stop != nil {
			return unknown(doubt, cmp.Or(failure, stop))
		}
	}
}

// unknown returns the error of a write that has no other answer than doubt. A conflict is told by its text alone: an
// error that matches ErrConflict says that nothing was stored.
func unknown(doubt, stop error) error {
	if errors.Is(doubt, ErrConflict) {
		doubt = errors.New(doubt.Error())
	}
	if stop == nil {
		return fmt.Errorf("%w: %w", ErrUnknown, doubt)
	}
	return fmt.Errorf("%w: %w: %w", ErrUnknown, stop, doubt)
}

// seal returns a content that no other call has returned, and its id.
func seal(h header, data []byte) (content []byte, id string, err error) {
	id = rand.Text()[:10]
	ids := append([]string{id}, strings.Fields(h.IDs)...)
	h.Version, h.IDs = version, strings.Join(ids[:min(len(ids), remembered)], " ")
	line, err := json.Marshal(h)
	if err != nil {
		return nil, "", err
	}
	content = make([]byte, 0, len(line)+1+len(data))
	content = append(append(append(content, line...), '\n'), data...)
	return content, id, nil
}

// Adopt turns an object that was written without a guard into a guarded object of f's lock, under a [fencing.Write]
// fence: the content becomes the data, the attributes stay. An object that is guarded already, or does not exist, is
// only claimed, so Adopt may run again.
//
// The earlier writers of the object are unknown, so the registers begin with f. Adopt an object that was never guarded,
// not an object that was overwritten past the guard, and only after all its writers use a guard.
func (g *Guard) Adopt(ctx context.Context, f fencing.Fence, key string) error {
	if err := allowed(f, key); err != nil {
		return err
	}
	_, err := g.do(ctx, f, key, access{check: fencing.Registers.Check, adopts: true})
	return err
}
