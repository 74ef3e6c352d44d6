package rwlockotel_test

import (
	"context"
	"errors"
	"os"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/rwlock/rwlockotel"
)

// Whatever rwlock.Stats counts is exported: each of its fields adds to one value.
func TestEveryStatisticIsExported(t *testing.T) {
	var s rwlock.Stats
	var want []int64
	var fill func(reflect.Value)
	fill = func(of reflect.Value) {
		switch of.Kind() {
		case reflect.Struct:
			for i := range of.NumField() {
				fill(of.Field(i))
			}
		case reflect.Int:
			want = append(want, int64(100+len(want)))
			of.SetInt(want[len(want)-1])
		default:
			want = append(want, int64(100+len(want)))
			of.SetUint(uint64(want[len(want)-1]))
		}
	}
	fill(reflect.ValueOf(&s).Elem())
	var got []int64
	for _, values := range rwlockotel.Values(s) {
		got = append(got, values...)
	}
	slices.Sort(got)
	require.Equal(t, want, got)
}

// The documentation has each instrument, and no other one.
func TestEveryInstrumentIsDocumented(t *testing.T) {
	exported := map[string]bool{}
	for name, m := range full(t).collect(t) {
		require.NotEmpty(t, m.Description, name)
		require.NotEmpty(t, m.Unit, name)
		exported[name] = true
	}
	require.Len(t, exported, 20)
	documented := func(page, row string) map[string]bool {
		names := map[string]bool{}
		for _, match := range regexp.MustCompile(row).FindAllStringSubmatch(page, -1) {
			names[match[1]] = true
		}
		return names
	}
	doc := expect.NoError(os.ReadFile("doc.go")).In(t)
	require.Equal(t, exported, documented(string(doc), `(?m)^//\t(fencelock\.\w+) `))
	require.Equal(t, exported, documented(observability(t), "(?m)^\\| `(fencelock\\.\\w+)` "))
}

func TestMetricsOfALocker(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		b, telemetry, p := observed(w)
		require.Equal(w, map[string]int64{
			"fencelock.reason=gone": 0, "fencelock.reason=not renewed": 0, "fencelock.reason=paused": 0,
			"fencelock.reason=max hold": 0, "fencelock.reason=broken": 0,
		}, b.sums(w, "fencelock.lost"), "before the first loss")

		first := p.Take("n", rwlock.Write)
		second := p.Queue("n", rwlock.Write)
		require.Equal(w, map[string]int64{"": 1}, b.sums(w, "fencelock.held"))
		require.Equal(w, map[string]int64{"": 1}, b.sums(w, "fencelock.waiting"))
		w.Pass(3 * time.Second)
		require.NoError(w, first.Release(w.Ctx))
		lease := second.Granted()
		w.Pass(7 * time.Second)
		require.NoError(w, lease.Release(w.Ctx))
		reads := p.Take("m", rwlock.Read)
		require.ErrorIs(w, expect.ErrorOf(p.TryLock(w.Ctx, "m")), rwlock.ErrNotAcquired)
		require.ErrorIs(w, expect.ErrorOf(p.Lock(w.Soon(2*time.Second), "m")), rwlock.ErrNotAcquired)
		w.FlushAll()
		w.UntilOver(reads)
		w.UntilOver(p.Take("s", rwlock.Write, rwlock.WithoutRenewal(), rwlock.WithTTL(time.Second)))
		w.Settle()

		require.Equal(w, map[string]int64{"": 4}, b.sums(w, "fencelock.acquired"))
		require.Equal(w, map[string]int64{"": 1}, b.sums(w, "fencelock.contended"))
		require.Equal(w, map[string]int64{"": 1}, b.sums(w, "fencelock.handed_off"))
		require.Equal(w, map[string]int64{"": 1}, b.sums(w, "fencelock.expired"))
		require.EqualValues(w, 1, b.sums(w, "fencelock.lost")["fencelock.reason=gone"])
		require.EqualValues(w, 2, b.sums(w, "fencelock.failed")["error.type=contended"])
		require.Equal(w, map[string]int64{"": 0}, b.sums(w, "fencelock.held"))
		require.Equal(w, map[string]int64{"": 0}, b.sums(w, "fencelock.waiting"))

		counts, sums := b.histogram(w, "fencelock.wait_time")
		require.Equal(w, map[string]uint64{
			"fencelock.mode=write": 3, "fencelock.mode=read": 1, "error.type=contended,fencelock.mode=write": 2,
		}, counts)
		require.InDelta(w, 3, sums["fencelock.mode=write"], 0.01)
		require.InDelta(w, 2, sums["error.type=contended,fencelock.mode=write"], 0.01)
		counts, sums = b.histogram(w, "fencelock.hold_time")
		require.Equal(w, map[string]uint64{"fencelock.mode=write": 3, "fencelock.mode=read": 1}, counts)
		require.InDelta(w, 3+7+1, sums["fencelock.mode=write"], 0.05)
		require.Zero(w, telemetry.Open())
		require.NoError(w, telemetry.Close())
		require.NotContains(w, b.collect(w), "fencelock.held")
	})
}

// A wait that fails is counted under the cause that Stats counts it under.
func TestTheCauseOfAFailureIsThatOfStats(t *testing.T) {
	for name, fail := range map[string]func(w *world, p *testkit.Process){
		"contended": func(w *world, p *testkit.Process) {
			w.Process().Take("n", rwlock.Write)
			ctx, cancel := context.WithCancelCause(w.Ctx)
			cancel(rwlock.ErrClosed) // whatever the caller's cause is
			require.Error(w, expect.ErrorOf(p.Lock(ctx, "n")))
		},
		"no_quorum": func(w *world, p *testkit.Process) {
			p.Link.Blackhole(testredis.Both)
			require.Error(w, expect.ErrorOf(p.Lock(w.Soon(time.Second), "n")))
		},
		"closed": func(w *world, p *testkit.Process) {
			w.Process().Take("n", rwlock.Write)
			a := p.Queue("n", rwlock.Write)
			require.NoError(w, p.Close())
			require.ErrorIs(w, a.Failed(), rwlock.ErrClosed)
		},
		"refused": func(w *world, p *testkit.Process) {
			w.Command("SET", "fencelock:{n}", "text")
			require.ErrorIs(w, expect.ErrorOf(p.Lock(w.Ctx, "n")), rwlock.ErrConflict)
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.InFakeTime(t, 1, func(w *world) {
				b, _, p := observed(w)
				fail(w, p)
				w.Settle()
				require.EqualValues(w, 1, b.sums(w, "fencelock.failed")["error.type="+name])
				counts, _ := b.histogram(w, "fencelock.wait_time")
				require.Equal(w, map[string]uint64{"error.type=" + name + ",fencelock.mode=write": 1}, counts)
			})
		})
	}
}

// Lockers that share a Telemetry are added up, and its attributes tell the lockers of another one from these.
func TestLockersAreAddedUpOrToldApart(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		b := newBackend()
		shared := b.telemetry(w, rwlockotel.WithAttributes(attribute.String("redis", "a")))
		alone := b.telemetry(w, rwlockotel.WithAttributes(attribute.String("redis", "b")))
		p, q := w.Process(rwlock.WithTrace(shared.Trace())), w.Process(rwlock.WithTrace(shared.Trace()))
		r := w.Process(rwlock.WithTrace(alone.Trace()))
		require.NoError(w, shared.Observe(p.Locker))
		require.NoError(w, shared.Observe(q.Locker))
		require.NoError(w, alone.Observe(r.Locker))
		p.Take("1", rwlock.Write)
		q.Take("2", rwlock.Write)
		r.Take("3", rwlock.Write)
		w.Settle()
		require.Equal(w, map[string]int64{"redis=a": 2, "redis=b": 1}, b.sums(w, "fencelock.held"))
		require.Equal(w, map[string]int64{"redis=a": 2, "redis=b": 1}, b.sums(w, "fencelock.acquired"))
		require.EqualValues(w, 0, b.sums(w, "fencelock.lost")["fencelock.reason=gone,redis=b"])
		counts, _ := b.histogram(w, "fencelock.wait_time")
		require.Equal(w, map[string]uint64{"fencelock.mode=write,redis=a": 2, "fencelock.mode=write,redis=b": 1}, counts)
		require.NoError(w, p.Close()) // what it has counted stays
		require.Equal(w, map[string]int64{"redis=a": 2, "redis=b": 1}, b.sums(w, "fencelock.acquired"))
		require.NoError(w, shared.Close())
		require.Equal(w, map[string]int64{"redis=b": 1}, b.sums(w, "fencelock.held"))
	})
}

// The name of a lock is nowhere, unless it is asked for; then it is what label makes of it.
func TestLocksAreNamedOnlyWhenAskedFor(t *testing.T) {
	type naming struct {
		opts  []rwlockotel.Option
		named bool
	}
	testkit.EachInFakeTime(t, 1, map[string]naming{
		"not asked for": {nil, false},
		"asked for": {[]rwlockotel.Option{rwlockotel.WithNames(func(name string) string {
			require.Equal(t, "secret:42", name)
			return "group-of-secret"
		})}, true},
		"none by its label": {[]rwlockotel.Option{rwlockotel.WithNames(func(string) string { return "" })}, false},
	}, func(w *world, c naming) {
		b, telemetry, p := observed(w, c.opts...)
		ctx, span := b.tracers.Tracer("test").Start(w.Ctx, "request")
		first := p.Take("secret:42", rwlock.Write)
		waits := p.Acquire(ctx, "secret:42", rwlock.Write)
		w.UntilWaiting("secret:42", 1)
		require.NoError(w, first.Release(w.Ctx))
		lost := waits.Granted()
		p.Link.Blackhole(testredis.Both)
		w.UntilOver(lost)
		p.Link.Restore()
		w.Pass(time.Minute)
		err := p.Do(ctx, "secret:42", telemetry.Section(func(ctx context.Context) error {
			require.Len(w, slices.Collect(p.Leases()), 1)
			w.FlushAll()
			<-ctx.Done()
			return context.Cause(ctx)
		}))
		require.ErrorIs(w, err, rwlock.ErrLost)
		w.Settle()
		span.End()
		all := b.dump(w)
		for _, has := range []string{"fencelock.wait", "fencelock.section", "fencelock.lost", "fencelock.at_risk"} {
			require.Contains(w, all, has)
		}
		require.NotContains(w, all, "secret:42")
		if c.named {
			require.Contains(w, all, "group-of-secret")
		}
	})
}

func TestBadInput(t *testing.T) {
	for name, opt := range map[string]rwlockotel.Option{
		"WithMeterProvider":  rwlockotel.WithMeterProvider(nil),
		"WithTracerProvider": rwlockotel.WithTracerProvider(nil),
		"WithNames":          rwlockotel.WithNames(nil),
		"option":             nil,
	} {
		telemetry, err := rwlockotel.New(opt)
		require.Nil(t, telemetry, name)
		require.ErrorIs(t, err, rwlock.ErrOption, name)
		require.ErrorContains(t, err, name+": nil: must not be nil")
	}
	telemetry := newBackend().telemetry(t)
	require.ErrorIs(t, telemetry.Observe(nil), rwlock.ErrOption)
	require.Nil(t, telemetry.Section(nil))
	require.NoError(t, telemetry.Close())
	require.NoError(t, telemetry.Close())
	require.ErrorIs(t, telemetry.Observe(&rwlock.Locker{}), rwlockotel.ErrClosed)
}

// The global providers may be set later or never, and those that are given may be shut down before.
func TestProvidersThatAreNotThere(t *testing.T) {
	testkit.InFakeTime(t, 1, func(w *world) {
		use := func(telemetry *rwlockotel.Telemetry) {
			p := w.Process(rwlock.WithTrace(telemetry.Trace()))
			require.NoError(w, telemetry.Observe(p.Locker))
			require.NoError(w, p.Do(w.Ctx, "n", telemetry.Section(func(context.Context) error { return nil })))
			require.NoError(w, p.Close())
			require.Zero(w, telemetry.Open())
		}
		global := expect.NoError(rwlockotel.New()).In(w)
		use(global)
		require.NoError(w, global.Close())

		b := newBackend()
		shut := b.telemetry(w)
		require.NoError(w, b.meters.Shutdown(w.Ctx))
		require.NoError(w, b.tracers.Shutdown(w.Ctx))
		use(shut)
		require.NoError(w, shut.Close())
	})
}

// Collections, closes and events at the same time.
func TestConcurrentUse(t *testing.T) {
	w := testkit.Start(t, 1)
	b, telemetry, p := observed(w)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 50 {
				if err := p.Do(w.Ctx, "n", telemetry.Section(func(context.Context) error { return nil })); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Go(func() {
		var into metricdata.ResourceMetrics
		for range 50 {
			if err := errors.Join(telemetry.Observe(p.Locker), b.reader.Collect(t.Context(), &into)); err != nil {
				t.Error(err)
			}
		}
	})
	all.Wait()
	require.NoError(t, p.Close())
	counts, _ := b.histogram(t, "fencelock.hold_time")
	require.Equal(t, map[string]uint64{"fencelock.mode=write": 200}, counts)
	require.Zero(t, telemetry.Open())
	all.Go(func() { _ = telemetry.Close() })
	all.Go(func() { b.collect(t) })
	all.Wait()
	require.Len(t, b.spans.Started(), len(b.spans.Ended()))
}
