package fencing

import (
	"context"
	"fmt"
	"sync"
)

// Watermark is the [Guard] of what one process keeps: data in its memory, a file,
// a device that it alone writes to. The zero value is ready; it must not be
// copied and is safe for concurrent use.
//
// Accesses of different resources never wait for each other. Those of one
// resource do as with a [sync.RWMutex]: a write runs alone, reads and derived
// stores run side by side, first come first served. Hence while a write runs no
// newer access runs, and the check, made once inside, is true until the access
// ends. An access that is stale on arrival is refused at once.
//
// A Watermark remembers the registers of every resource that it has seen, some
// 200 bytes each, for as long as it lives: a register that is forgotten lets the
// next stale write through. They do not survive the process; data that does
// needs a guard that stores its registers beside it.
type Watermark struct {
	mu        sync.Mutex // guards the map, never held while anybody waits
	resources map[string]*register
}

// register is one resource: the gate orders the accesses, mu guards the values,
// which readers inside the gate raise concurrently.
type register struct {
	gate   gate
	mu     sync.Mutex
	values Registers
}

var _ Guard = (*Watermark)(nil)

// Do implements [Guard]. While the access of another waits to end, ctx bounds
// the waiting: the error matches ctx.Err() and its cause, such as [ErrLost], and nothing has changed.
//
// access gets a context that tells that it comes from inside; hand it on. Under it, any access of the same resource of
// the same Watermark is [ErrNested] at once: it would wait for itself.
func (w *Watermark) Do(ctx context.Context, f Fence, access func(context.Context) error) error {
	return w.run(ctx, f, rule{
		alone: f.Mode == Write,
		check: Registers.Check,
		raise: Registers.Raise,
	}, access)
}

// Derive is Do for storing what was derived from a read, such as a cache entry:
// accepted while nothing newer has been written, it raises no register. So a
// value that was read before a newer write is refused, and one that was read
// beside newer readers is not. Derived stores run side by side, whatever f's mode.
func (w *Watermark) Derive(ctx context.Context, f Fence, store func(context.Context) error) error {
	return w.run(ctx, f, rule{
		check: Registers.CheckDerived,
		raise: func(seen Registers, _ Fence) Registers { return seen },
	}, store)
}

// Claim raises f's register before the first access, so that from here on
// everything older is refused. It is Do with an access that does nothing, and
// waits like Do for accesses that were accepted before: when it has returned, no
// older write is still under way, and what the holder reads next stays true until
// it writes. The waiting has no limit but those accesses; use Do for one that has.
// Inside an access of the same resource it would wait for itself, and without a
// context nothing tells it so: claim before.
func (w *Watermark) Claim(f Fence) error {
	return w.Do(context.Background(), f, func(context.Context) error { return nil })
}

// Reset sets both registers of f's resource to f's token, also where that takes them
// back: for a register that a token from the far future has raised, which refuses every
// holder since. f is the [Write] fence of whoever repairs it, from a lock taken for that
// purpose: everything older is refused afterwards, everything granted later is
// accepted. Reset waits like [Watermark.Do] for accesses that are under way.
//
// It is the only access that an old token could misuse: call it from an operator's
// tool, never with a fence from a request.
func (w *Watermark) Reset(ctx context.Context, f Fence) error {
	if f.Mode == Read {
		return malformed("mode", f.Mode.String(), "a reset needs the fence of a write lock")
	}
	return w.run(ctx, f, rule{
		alone: true,
		check: func(_ Registers, f Fence) error { return f.Validate() },
		raise: func(_ Registers, f Fence) Registers { return Registers{MaxRead: f.Token, MaxWrite: f.Token} },
	}, func(context.Context) error { return nil })
}

// Seen returns the greatest tokens that have read and written the resource, zero
// where none has.
func (w *Watermark) Seen(resource string) (maxRead, maxWrite Token) {
	w.mu.Lock()
	r := w.resources[resource]
	w.mu.Unlock()
	if r == nil {
		return 0, 0
	}
	seen := r.load()
	return seen.MaxRead, seen.MaxWrite
}

// rule is what sets Do and Derive apart.
type rule struct {
	alone bool // nobody else inside
	check func(Registers, Fence) error
	raise func(Registers, Fence) Registers
}

func (w *Watermark) run(ctx context.Context, f Fence, by rule, access func(context.Context) error) error {
	if access == nil {
		return fmt.Errorf("fencing: the access of %q is nil", clip(f.Resource))
	}
	if err := f.Validate(); err != nil {
		return err
	}
	r := w.register(f.Resource)
	if err := r.refuseNested(ctx, f); err != nil {
		return err
	}
	// Registers only grow, so what is stale now is stale later: it need not wait,
	// nor hold up others in the queue.
	if err := by.check(r.load(), f); err != nil {
		return err
	}
	if err := r.gate.enter(ctx, by.alone); err != nil {
		return fmt.Errorf("fencing: waiting for accesses of %q to end: %w", f.Resource, err)
	}
	defer r.gate.leave(by.alone)
	if err := r.admit(f, by); err != nil {
		return err
	}
	return r.visit(ctx, access)
}

func (w *Watermark) register(resource string) *register {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.resources[resource]
	if r == nil {
		if w.resources == nil {
			w.resources = make(map[string]*register)
		}
		r = new(register)
		w.resources[resource] = r
	}
	return r
}

func (r *register) load() Registers {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.values
}

// admit checks and raises in one step.
func (r *register) admit(f Fence, by rule) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := by.check(r.values, f); err != nil {
		return err
	}
	r.values = by.raise(r.values, f)
	return nil
}
