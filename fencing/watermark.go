package fencing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Watermark is the [Guard] of data in the memory of one process. The zero value is ready; it must not be copied and is
// safe for concurrent use.
//
// Accesses of different resources never wait for each other. Accesses of one resource wait as with a [sync.RWMutex]: a
// write runs alone, reads and derived stores run side by side, first come first served. Hence no newer access runs
// during a write, and the check, which runs once inside, stays true until the access ends. An access that is stale on
// arrival is refused at once.
//
// A Watermark keeps the registers of every resource that it has seen, some 200 bytes each, for its whole life:
// forgetting a register would let the next stale write through. The registers end with the process. A file outlives it:
// after a restart an old token would be accepted. Store [Registers] in the file, with the data; see the example there.
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
// Under a [Read] fence access runs beside other readers, and must not write. Do cannot see what it does: a method that
// writes asks for f.Mode == Write first.
//
// access gets a context that marks it as running inside; pass it on. Under this context, any access of the same
// resource of the same Watermark returns [ErrNested] at once: it would wait for itself.
func (w *Watermark) Do(ctx context.Context, f Fence, access func(context.Context) error) error {
	return w.run(ctx, []Fence{f}, checked, access)
}

// DoAll is Do under several fences, of reads and of writes: access runs inside an access of each resource. One refused
// fence refuses all of them, with an error that names its resource, and then no register is raised. Do on any of the
// resources under the context of access is [ErrNested].
//
// It waits for the resources in their byte order, whatever the order of fences, so that calls of DoAll never wait for
// each other in a circle. A Do inside the access of another resource keeps to that order too, or may deadlock until its
// context ends. No fence, and two fences of one resource, are [ErrMalformed].
func (w *Watermark) DoAll(ctx context.Context, fences []Fence, access func(context.Context) error) error {
	if len(fences) == 0 {
		return malformed("fences", "", "at least one is needed")
	}
	sorted := slices.Clone(fences)
	slices.SortFunc(sorted, func(a, b Fence) int { return strings.Compare(a.Resource, b.Resource) })
	for i, f := range sorted[1:] {
		if f.Resource == sorted[i].Resource {
			return malformed("fences", f.Resource, "two fences of one resource")
		}
	}
	return w.run(ctx, sorted, checked, access)
}

// Derive is Do for storing a value that was derived from a read, such as a cache entry: it is accepted while nothing
// newer has been written, and it raises no register. So a value that was read before a newer write is refused, and a
// value that was read concurrently with newer readers is not. Derived stores run side by side, independent of f's mode.
func (w *Watermark) Derive(ctx context.Context, f Fence, store func(context.Context) error) error {
	return w.run(ctx, []Fence{f}, func(Fence) rule {
		return rule{
			check: Registers.CheckDerived,
			raise: func(seen Registers, _ Fence) Registers { return seen },
		}
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
	return w.run(ctx, []Fence{f}, func(Fence) rule {
		return rule{
			alone: true,
			check: func(_ Registers, f Fence) error { return f.Validate() },
			raise: func(_ Registers, f Fence) Registers { return Registers{MaxRead: f.Token, MaxWrite: f.Token} },
		}
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

// checked is the rule of Do.
func checked(f Fence) rule {
	return rule{alone: f.Mode == Write, check: Registers.Check, raise: Registers.Raise}
}

// run runs access under fences, which are in the order of their resources.
func (w *Watermark) run(
	ctx context.Context, fences []Fence, ruleOf func(Fence) rule, access func(context.Context) error,
) error {
	if access == nil {
		return fmt.Errorf("fencing: the access of %q is nil", clip(fences[0].Resource))
	}
	for _, f := range fences {
		if err := f.Validate(); err != nil {
			return err
		}
	}
	var one [1]entry
	entries := one[:0]
	for _, f := range fences {
		e := entry{w.register(f.Resource), f, ruleOf(f)}
		if err := e.refuseNested(ctx, f); err != nil {
			return err
		}
		// Registers only grow, so a stale access stays stale: it need not wait, nor delay accesses behind it in the
		// queue.
		if err := e.rule.check(e.load(), f); err != nil {
			return err
		}
		entries = append(entries, e)
	}
	return enter(ctx, entries, 0, access)
}

// entry is a fence that enters the gate of its register.
type entry struct {
	*register
	fence Fence
	rule  rule
}

// enter enters the gate of an entry, inside it those of the next ones, and then raises the registers and runs access.
//
// Inside the gate the check is final: a write is alone, and beside a read or a derived store there is no write, so that
// the token stays by which they are checked.
func enter(ctx context.Context, entries []entry, next int, access func(context.Context) error) error {
	if next == len(entries) {
		for _, e := range entries {
			e.raise(e.fence, e.rule)
		}
		return access(ctx)
	}
	e := entries[next]
	if ctx.Err() != nil {
		return fmt.Errorf("fencing: %q not accessed: %w", e.fence.Resource, ended(ctx))
	}
	if err := e.gate.enter(ctx, e.rule.alone); err != nil {
		return fmt.Errorf("fencing: waiting for accesses of %q to end: %w", e.fence.Resource, err)
	}
	defer e.gate.leave(e.rule.alone)
	if err := e.rule.check(e.load(), e.fence); err != nil {
		return err
	}
	v := &visit{of: e.register, outer: innermostVisit(ctx)}
	defer v.over.Store(true)
	return enter(context.WithValue(ctx, visitKey{}, v), entries, next+1, access)
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

// raise raises the register. Readers inside the gate may do so at the same time.
func (r *register) raise(f Fence, by rule) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.values = by.raise(r.values, f)
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

// enter returns nil once the caller is inside. If ctx ends while it waits, it returns ctx's error with the cause, and
// the gate is as if enter had not been called.
func (g *gate) enter(ctx context.Context, alone bool) error {
	g.mu.Lock()
	if len(g.queue) == 0 && g.fits(alone) {
		g.occupy(alone)
		g.mu.Unlock()
		return nil
	}
	v := &visitor{alone: alone, entered: make(chan struct{})}
	g.queue = append(g.queue, v)
	g.mu.Unlock()

	entered := false
	defer func() { // also if a method of ctx panics, as that of a request that is over may
		if !entered {
			g.giveUp(v)
		}
	}()
	select {
	case <-v.entered:
		entered = true
		return nil
	case <-ctx.Done():
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
