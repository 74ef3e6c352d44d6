package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Watermark is the [Guard] of data that a single process keeps: data in its memory, a file, a device that only this
// process writes to. The zero value is ready; it must not be copied and is safe for concurrent use.
//
// Accesses of different resources never wait for each other. Accesses of one resource wait as with a [sync.RWMutex]: a
// write runs alone, reads and derived stores run side by side, first come first served. Hence no newer access runs
// during a write, and the check, which runs once inside, stays true until the access ends. An access that is stale on
// arrival is refused at once.
//
// A Watermark keeps the registers of every resource that it has seen, some 200 bytes each, for its whole life:
// forgetting a register would let the next stale write through. The registers do not survive the process; data that
// survives it needs a guard that stores its registers with the data.
type Watermark struct {
	mu        sync.Mutex // guards the map, never held while a goroutine waits
	resources map[string]*register
}

// register is the state of one resource: the gate orders the accesses, mu guards the values, which readers inside the
// gate raise concurrently.
type register struct {
	gate   gate
	mu     sync.Mutex
	values Registers
}

var _ Guard = (*Watermark)(nil)

// Do implements [Guard]. While Do waits for another access to end, ctx bounds the waiting: the error matches ctx.Err()
// and its cause, such as [ErrLost], and nothing has changed.
//
// access gets a context that marks it as running inside; pass it on. Under this context, any access of the same
// resource of the same Watermark returns [ErrNested] at once: it would wait for itself.
func (w *Watermark) Do(ctx context.Context, f Fence, access func(context.Context) error) error {
	return w.run(ctx, f, rule{
		alone: f.Mode == Write,
		check: Registers.Check,
		raise: Registers.Raise,
	}, access)
}

// Derive is Do for storing a value that was derived from a read, such as a cache entry: it is accepted while nothing
// newer has been written, and it raises no register. So a value that was read before a newer write is refused, and a
// value that was read concurrently with newer readers is not. Derived stores run side by side, independent of f's mode.
func (w *Watermark) Derive(ctx context.Context, f Fence, store func(context.Context) error) error {
	return w.run(ctx, f, rule{
		check: Registers.CheckDerived,
		raise: func(seen Registers, _ Fence) Registers { return seen },
	}, store)
}

// Claim raises f's register before the first access, so that from here on everything older is refused. It is Do with an
// access that does nothing, and like Do it waits for accesses that were accepted before: after it has returned, no
// older write is still running, and what the holder reads next stays true until it writes. Only those accesses bound
// the waiting; use Do to bound it with a context. Inside an access of the same resource Claim would wait for itself,
// and without a context it cannot detect that: call it before the access.
func (w *Watermark) Claim(f Fence) error {
	return w.Do(context.Background(), f, func(context.Context) error { return nil })
}

// Reset sets both registers of f's resource to f's token, even if that lowers them: it repairs a register that a token
// from the far future has raised, which refuses every later holder. f is a [Write] fence from a lock that the operator
// took for the repair: everything older is refused afterwards, everything granted later is accepted. Reset waits like
// [Watermark.Do] for running accesses.
//
// It is the only access that an old token could misuse: call it from an operator's tool, never with a fence from a
// request.
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

// Seen returns the greatest tokens that have read and written the resource, or zero if there are none.
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

// rule is the difference between Do and Derive.
type rule struct {
	alone bool // excludes every other access
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
	// Registers only grow, so a stale access stays stale: it need not wait, nor delay accesses behind it in the queue.
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

// admit checks f and raises the register in one step.
func (r *register) admit(f Fence, by rule) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := by.check(r.values, f); err != nil {
		return err
	}
	r.values = by.raise(r.values, f)
	return nil
}

// gate is a readers-writer lock whose waiting ends with a context, unlike sync.RWMutex. Visitors enter in the order of
// their arrival; readers that are adjacent in the queue enter together.
type gate struct {
	mu     sync.Mutex
	shared int  // readers inside
	alone  bool // a writer is inside
	queue  []*visitor
}

type visitor struct {
	alone   bool
	entered chan struct{} // closed when inside
}

// enter returns nil once the caller is inside. If ctx ends first, it returns ctx's error with the cause, and the gate
// is as if enter had not been called.
func (g *gate) enter(ctx context.Context, alone bool) error {
	if ctx.Err() != nil {
		return ended(ctx)
	}
	g.mu.Lock()
	if len(g.queue) == 0 && g.fits(alone) {
		g.occupy(alone)
		g.mu.Unlock()
		return nil
	}
	v := &visitor{alone: alone, entered: make(chan struct{})}
	g.queue = append(g.queue, v)
	g.mu.Unlock()

	select {
	case <-v.entered:
		return nil
	case <-ctx.Done():
		g.giveUp(v)
		return ended(ctx)
	}
}

// ended returns ctx.Err(), with the cause if that adds information.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// giveUp ends v's waiting. In both cases other visitors may fit in now: either v was admitted at the same moment and
// leaves, or v stood before them in the queue.
func (g *gate) giveUp(v *visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.queue, v); i >= 0 {
		g.queue = slices.Delete(g.queue, i, i+1)
	} else {
		g.vacate(v.alone)
	}
	g.admit()
}

func (g *gate) leave(alone bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.vacate(alone)
	g.admit()
}

// admit lets in visitors from the front of the queue while they are compatible with the ones inside.
func (g *gate) admit() {
	for len(g.queue) > 0 && g.fits(g.queue[0].alone) {
		first := g.queue[0]
		g.queue = slices.Delete(g.queue, 0, 1)
		g.occupy(first.alone)
		close(first.entered)
	}
}

func (g *gate) fits(alone bool) bool {
	return !g.alone && (!alone || g.shared == 0)
}

func (g *gate) occupy(alone bool) {
	if alone {
		g.alone = true
	} else {
		g.shared++
	}
}

func (g *gate) vacate(alone bool) {
	if alone {
		g.alone = false
	} else {
		g.shared--
	}
}
