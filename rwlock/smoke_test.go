package rwlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestSmoke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		l, err := rwlock.New(mini.Client(t))
		require.NoError(t, err)
		defer l.Close()
		ctx := context.Background()
		a, err := l.Lock(ctx, "x")
		require.NoError(t, err)
		t.Log(a.Token(), a.Deadline(), mini.AllCalls())
		got := make(chan *rwlock.Lease)
		go func() {
			b, err := l.Lock(ctx, "x")
			require.NoError(t, err)
			got <- b
		}()
		time.Sleep(25 * time.Second)
		s, err := l.Inspect(ctx, "x")
		t.Logf("%+v %v", s, err)
		t.Log(mini.AllCalls())
		_, err = l.TryLock(ctx, "x")
		t.Log(err)
		start := time.Now()
		require.NoError(t, a.Release(ctx))
		b := <-got
		t.Log(time.Since(start), b.Token(), b.Deadline().Sub(time.Now()))
		time.Sleep(5 * time.Second)
		t.Log(b.Deadline().Sub(time.Now()), b.Err())
		require.NoError(t, b.Release(ctx))
		t.Log(mini.Miniredis().Dump(), mini.AllCalls())
		t.Logf("%+v", l.Stats())
	})
}

func TestSmokeReal(t *testing.T) {
	srv := testredis.Start(t)
	c := srv.Client(t)
	l, err := rwlock.New(c)
	require.NoError(t, err)
	defer l.Close()
	ctx := context.Background()
	a, err := l.Lock(ctx, "x")
	require.NoError(t, err)
	a.Release(ctx)
	srv.ResetStats()
	t.Log(testing.AllocsPerRun(1000, func() {
		a, err := l.Lock(ctx, "x")
		if err != nil {
			t.Fatal(err)
		}
		a.Release(ctx)
	}))
	st := time.Now()
	for range 1000 {
		a, _ := l.Lock(ctx, "x")
		a.Release(ctx)
	}
	t.Log(time.Since(st)/1000, srv.Stats()["evalsha"])
}
