package fencelock_test

import (
	"context"
	"errors"
	"time"

	"github.com/seed74116694/fencelock/reentrant"
	"github.com/seed74116694/fencelock/rwlock"
)

func forms(ctx context.Context, locker *rwlock.Locker, work func(context.Context) error) error {
	// One section. RDo is for readers, and TryDo does not wait.
	one := locker.Do(ctx, "report", work, rwlock.WithTTL(5*time.Second))

	// Several locks at once, without a deadlock. The work has a fence of each.
	several := locker.DoAll(ctx, rwlock.Writes("account:1", "account:2"), work)

	// A sync.RWMutex across processes. Goroutines of one process hand it on without Redis.
	mutex := locker.RWMutex("config").RDo(ctx, work)

	// Functions that lock and call each other. The inner call joins the outer one by its ctx.
	locks := reentrant.New(locker)
	nested := locks.Do(ctx, "order:7", func(ctx context.Context) error {
		return locks.Do(ctx, "order:7", work)
	})

	// A lease that you hold, watch and give back yourself.
	lease, err := locker.Lock(ctx, "index", rwlock.WithMaxHold(time.Hour))
	if err != nil {
		return err
	}
	defer lease.Release(ctx) // also after ctx has ended
	return errors.Join(one, several, mutex, nested, work(lease.Context(ctx)))
}
