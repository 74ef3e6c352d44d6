package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

// workersPerClient is more than one, so that the goroutines of a process contend among themselves too.
const workersPerClient = 2

// The shares of the sections, in percent; the rest are nested ones.
const (
	readShare  = 55
	writeShare = 30
)

// worker is one goroutine of a client, going from section to section.
type worker struct {
	*stage
	client *client
	beat   []string // the names that it works on
	waits  waits
}

// beat distributes the names among the workers. If each worker took any name, all would soon wait behind the stalled
// name, and the run would show nothing else.
func beat(names []string, worker, workers int) []string {
	if workers >= len(names) {
		return names[worker%len(names):][:1]
	}
	var all []string
	for i := worker; i < len(names); i += workers {
		all = append(all, names[i])
	}
	return all
}

// waits are the durations of successful acquisitions. Nested ones are inside a section of the same owner.
type waits struct{ write, read, nested histogram }

func (w *waits) merge(other *waits) {
	w.write.merge(&other.write)
	w.read.merge(&other.read)
	w.nested.merge(&other.nested)
}

func (w *waits) of(mode rwlock.Mode) *histogram {
	if mode == rwlock.Write {
		return &w.write
	}
	return &w.read
}

// work repeats sections until working ends, but runs at least one section even in a short run: the context first bounds
// that one. A section that has begun is finished.
func (w *worker) work(first, working context.Context) {
	ctx := reentrant.WithOwner(first)
	for ctx.Err() == nil {
		name := w.beat[rand.IntN(len(w.beat))]
		var err error
		switch rng := rand.IntN(100); {
		case rng < readShare:
			err = w.section(ctx, name, rwlock.Read)
		case rng < readShare+writeShare:
			err = w.section(ctx, name, rwlock.Write)
		default:
			err = w.nestedSections(ctx, name)
		}
		switch {
		case err == nil:
			ctx = reentrant.WithOwner(working)
		case ctx.Err() == nil:
			w.score.failed(err)
			pause(ctx, 50*time.Millisecond) // limits the load on a server in trouble
		}
	}
}

func (w *worker) section(ctx context.Context, name string, mode rwlock.Mode) error {
	take := w.client.locker.Lock
	if mode == rwlock.Read {
		take = w.client.locker.RLock
	}
	before, asked := w.checker.newest(name, mode), time.Now()
	lease, err := take(ctx, name)
	if err != nil {
		return err
	}
	w.waits.of(mode).add(time.Since(asked))
	w.occupy(w.client.id, lease, before, func() { w.use(context.WithoutCancel(ctx), lease) })
	return notLost(lease.Release(ctx))
}

// nestedSections is a function that locks, calling functions that lock the same name.
func (w *worker) nestedSections(ctx context.Context, name string) error {
	before, asked := w.checker.newest(name, rwlock.Write), time.Now()
	outer, err := w.client.nested.Lock(ctx, name)
	if err != nil {
		return err
	}
	w.waits.write.add(time.Since(asked))
	w.occupy(w.client.id, outer.Lease(), before, func() {
		err = w.nest(ctx, outer, w.client.nested.Lock, func() {
			err = w.nest(ctx, outer, w.client.nested.RLock, func() {
				w.use(context.WithoutCancel(ctx), outer.Lease())
			})
		})
	})
	return errors.Join(notLost(err), notLost(outer.Release(ctx)))
}

// nest takes a lock that the owner has already. It must be the same hold: the same token, deeper by one.
func (w *worker) nest(ctx context.Context, outer *reentrant.Hold, take nestedTake, work func()) error {
	asked := time.Now()
	inner, err := take(context.WithoutCancel(ctx), outer.Lease().Name())
	if err != nil {
		return err
	}
	w.waits.nested.add(time.Since(asked))
	if inner.Token() != outer.Token() {
		w.score.violated(tokenOrder, "a nested section has another token than the one around it: "+
			inner.Token().String()+" in "+outer.Token().String())
	}
	work()
	return inner.Release(ctx)
}

type nestedTake = func(context.Context, string, ...rwlock.LockOption) (*reentrant.Hold, error)

// notLost leaves out losses: the locker counts them, and the guard refuses what they would do.
func notLost(err error) error {
	if errors.Is(err, rwlock.ErrLost) {
		return nil
	}
	return err
}
