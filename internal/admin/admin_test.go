package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/admin"
	"github.com/seed74116694/fencelock/internal/engine"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/settings"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bed has masters, an engine that holds locks, and the admin of another one.
type bed struct {
	*testing.T
	minis  []*testredis.Mini
	holder *engine.Engine
	links  []*testredis.Link // of the holder
	engine *engine.Engine    // that of admin
	admin  *admin.Admin
	asked  []*testredis.Link // by admin
}

var by = wire.Breaker{Who: "ann", Why: "wrong version"}

// inBed runs a subtest in fake time.
func inBed(t *testing.T, name string, masters int, test func(b *bed)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			b := &bed{T: t}
			var clients [2][]rueidis.Client
			for i := range masters {
				mini := testredis.NewMini(t)
				mini.SetAddr(fmt.Sprintf("mini-%d:6379", i))
				b.minis = append(b.minis, mini)
				b.links, b.asked = append(b.links, mini.NewLink()), append(b.asked, mini.NewLink())
				clients[0] = append(clients[0], b.links[i].Client(t))
				clients[1] = append(clients[1], b.asked[i].Client(t))
			}
			b.holder, b.engine = b.start(clients[0]), b.start(clients[1])
			b.admin = b.engine.Admin()
			test(b)
		})
	})
}

func (b *bed) start(clients []rueidis.Client) *engine.Engine {
	s := settings.Default()
	s.Clients, s.Logger = clients, slog.New(slog.DiscardHandler)
	require.Nil(b, s.Check())
	e := engine.New(s.Engine())
	b.Cleanup(e.Close)
	return e
}

func request(name string, mode fencing.Mode) engine.Request {
	lock := settings.Default().Lock
	lock.Meta = "of " + name
	return engine.Request{Name: name, Mode: mode, Entry: engine.Wait, Terms: lock.Prepare()}
}

func (b *bed) take(name string, mode fencing.Mode) *engine.Lease {
	b.Helper()
	l := new(engine.Lease)
	require.NoError(b, b.holder.Acquire(b.Context(), l, request(name, mode)))
	time.Sleep(time.Second) // until each master has it
	return l
}

// queue has a write wait for a lock. ended gets how that ends.
func (b *bed) queue(ctx context.Context, name string) (ended chan error) {
	ended = make(chan error, 1)
	go func() { ended <- b.holder.Acquire(ctx, new(engine.Lease), request(name, fencing.Write)) }()
	time.Sleep(time.Second)
	return ended
}

func (b *bed) inspect(name string) []admin.View {
	b.Helper()
	views, open := b.admin.Inspect(b.Context(), name)
	require.True(b, open)
	require.Len(b, views, len(b.minis))
	return views
}

func (b *bed) keys() (all []string) {
	for _, mini := range b.minis {
		all = append(all, mini.Miniredis().Keys()...)
	}
	return all
}

// listed returns the names that a list yields, and its errors.
func (b *bed) listed(ctx context.Context, prefix string, free bool) (names []string, failed []error) {
	for l := range b.admin.List(ctx, prefix, free) {
		if l.Err != nil {
			require.Equal(b, admin.Listed{Err: l.Err}, l)
			failed = append(failed, l.Err)
			continue
		}
		require.Len(b, l.Views, len(b.minis))
		names = append(names, l.Name)
	}
	slices.Sort(names)
	return names, failed
}

// Each master shows what it has of a lock, and none is changed by it.
func TestInspect(t *testing.T) {
	for _, masters := range []int{1, 3} {
		inBed(t, fmt.Sprint(masters, " masters"), masters, func(b *bed) {
			for i, v := range b.inspect("n") {
				require.Equal(b, admin.View{Index: i, Addr: fmt.Sprintf("mini-%d:6379", i)}, v, "nothing is known of it")
			}
			lease := b.take("n", fencing.Read)
			ctx, cancel := context.WithCancel(b.Context())
			ended := b.queue(ctx, "n")
			before := b.keys()
			for i, v := range b.inspect("n") {
				require.NoError(b, v.Err)
				require.Equal(b, fmt.Sprintf("mini-%d:6379", i), v.Addr)
				require.Equal(b, i, v.Index)
				require.Len(b, v.Holders, 1)
				require.Equal(b, lease.Hold(), v.Holders[0].Hold)
				require.Equal(b, lease.Token(), v.Holders[0].Token)
				require.Equal(b, fencing.Read, v.Holders[0].Mode)
				require.Equal(b, "of n", v.Holders[0].Meta)
				require.False(b, v.Holders[0].Broken)
				require.Len(b, v.Waiters, 1)
			}
			require.Equal(b, before, b.keys())
			cancel()
			require.Error(b, <-ended)
			require.NoError(b, lease.Release(b.Context()))
		})
	}
}

// A master that does not answer is silent. One whose key is no lock has answered.
func TestInspectTellsSilenceFromARefusal(t *testing.T) {
	inBed(t, "of three", 3, func(b *bed) {
		require.NoError(b, b.minis[1].Miniredis().Set("fencelock:{n}", "mine"))
		b.minis[2].Freeze()
		views := b.inspect("n")
		require.NoError(b, views[0].Err)
		require.ErrorContains(b, views[1].Err, "WRONGTYPE")
		require.False(b, views[1].Silent)
		var silence *lockerr.NoReply
		require.ErrorAs(b, views[2].Err, &silence)
		require.Equal(b, b.admin.Timeout, silence.After)
		require.True(b, views[2].Silent)
		b.minis[2].Thaw()
	})
}

// A list has each lock that some master shows as in use, once; those that are free if they are asked for.
func TestList(t *testing.T) {
	for _, masters := range []int{1, 3} {
		inBed(t, fmt.Sprint(masters, " masters"), masters, func(b *bed) {
			leases := []*engine.Lease{b.take("a1", fencing.Write), b.take("a2", fencing.Read), b.take("a*", fencing.Write)}
			require.NoError(b, b.take("a3", fencing.Write).Release(b.Context()))
			leases = append(leases, b.take("b", fencing.Write))
			time.Sleep(time.Second) // every master has had the release
			for _, c := range []struct {
				prefix string
				free   bool
				names  []string
			}{
				{"", false, []string{"a*", "a1", "a2", "b"}},
				{"a", false, []string{"a*", "a1", "a2"}},
				{"a", true, []string{"a*", "a1", "a2", "a3"}},
				{"a*", false, []string{"a*"}},
				{"none", true, nil},
			} {
				names, failed := b.listed(b.Context(), c.prefix, c.free)
				require.Empty(b, failed)
				require.Equal(b, c.names, names, "%q, free: %v", c.prefix, c.free)
			}
			for l := range b.admin.List(b.Context(), "", false) { // the caller may stop
				require.NoError(b, l.Err)
				break
			}
			for _, l := range leases {
				require.NoError(b, l.Release(b.Context()))
			}
		})
	}
}

// A master that does not answer is named, and the locks of the others are listed.
func TestListGoesOnWithoutAMaster(t *testing.T) {
	inBed(t, "of three", 3, func(b *bed) {
		lease := b.take("n", fencing.Write)
		b.minis[0].Freeze()
		names, failed := b.listed(b.Context(), "", false)
		require.Equal(b, []string{"n"}, names)
		require.Len(b, failed, 1)
		var of *lockerr.NodeFailure
		require.ErrorAs(b, failed[0], &of)
		require.Equal(b, "mini-0:6379", of.Addr)
		b.minis[0].Thaw()
		require.NoError(b, lease.Release(b.Context()))
	})
}

// The end of the context, and of the engine, end a list with that error alone.
func TestListEnds(t *testing.T) {
	inBed(t, "by its context", 1, func(b *bed) {
		ctx, cancel := context.WithCancelCause(b.Context())
		enough := errors.New("enough")
		cancel(enough)
		names, failed := b.listed(ctx, "", false)
		require.Empty(b, names)
		require.Len(b, failed, 1)
		require.ErrorIs(b, failed[0], enough)
		require.ErrorIs(b, failed[0], context.Canceled)
	})
	inBed(t, "by Close", 1, func(b *bed) {
		b.engine.Close()
		names, failed := b.listed(b.Context(), "", false)
		require.Empty(b, names)
		require.Equal(b, []error{lockerr.ErrClosed}, failed)
		_, open := b.admin.Inspect(b.Context(), "n")
		require.False(b, open)
		_, open = b.admin.Ping(b.Context())
		require.False(b, open)
		require.Equal(b, lockerr.ErrClosed, b.admin.Break(b.Context(), "n", strings.Repeat("0", 26), by, false))
	})
}

// What stands is ended: a lease by the word of its process, at once without it, a wait at once.
func TestBreak(t *testing.T) {
	for _, masters := range []int{1, 3} {
		name := fmt.Sprint(", ", masters, " masters")
		inBed(t, "a lease"+name, masters, func(b *bed) {
			lease := b.take("n", fencing.Write)
			require.NoError(b, b.admin.Break(b.Context(), "n", lease.Hold(), by, false))
			var loss *lockerr.Loss
			require.ErrorAs(b, lease.Err(), &loss)
			require.Equal(b, lockerr.Broken, loss.Reason)
			var breaker *lockerr.Breaker
			require.ErrorAs(b, loss, &breaker)
			require.Equal(b, by, *breaker)
			require.Equal(b, admin.ErrGone, b.admin.Break(b.Context(), "n", lease.Hold(), by, false))
		})
		inBed(t, "a lease of a process that is cut off"+name, masters, func(b *bed) {
			lease := b.take("n", fencing.Write)
			for _, link := range b.links {
				link.Hold(testredis.Both)
			}
			for _, link := range b.asked {
				link.Delay(10 * time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(b.Context(), 70*time.Millisecond) // it ends while it asks again
			defer cancel()
			err := b.admin.Break(ctx, "n", lease.Hold(), by, false)
			require.ErrorIs(b, err, context.DeadlineExceeded)
			require.False(b, errors.As(err, new(*lockerr.Error)), "a quorum has broken it")
			for _, v := range b.inspect("n") {
				require.True(b, v.Holders[0].Broken)
				require.Equal(b, [2]string{by.Who, by.Why}, [2]string{v.Holders[0].BrokenBy, v.Holders[0].BrokenWhy})
			}
			require.NoError(b, b.admin.Break(b.Context(), "n", lease.Hold(), by, false), "again, until it has expired")
			require.False(b, time.Now().Before(lease.Deadline()), "its process trusts in it until then")
			for _, link := range b.links {
				link.Restore()
			}
		})
		inBed(t, "at once, a lease of a process that is cut off"+name, masters, func(b *bed) {
			lease, begun := b.take("n", fencing.Write), time.Now()
			for _, link := range b.links {
				link.Hold(testredis.Both)
			}
			require.NoError(b, b.admin.Break(b.Context(), "n", lease.Hold(), by, true))
			require.Less(b, time.Since(begun), time.Second)
			for _, v := range b.inspect("n") {
				require.Empty(b, v.Holders)
			}
			for _, link := range b.links {
				link.Restore()
			}
		})
		inBed(t, "a wait"+name, masters, func(b *bed) {
			lease := b.take("n", fencing.Write)
			ended := b.queue(b.Context(), "n")
			require.NoError(b, b.admin.Break(b.Context(), "n", b.inspect("n")[0].Waiters[0].Hold, by, false))
			var breaker *lockerr.Breaker
			require.ErrorAs(b, <-ended, &breaker)
			require.NoError(b, lease.Err())
			require.NoError(b, lease.Release(b.Context()))
		})
	}
}

// A Break that no quorum carries out says so, and names the lock and the masters. What no master has is gone.
func TestBreakRefuses(t *testing.T) {
	inBed(t, "of three", 3, func(b *bed) {
		lease := b.take("n", fencing.Write)
		for _, c := range []struct{ name, hold string }{{"other", lease.Hold()}, {"n", strings.Repeat("0", 26)}} {
			require.Equal(b, admin.ErrGone, b.admin.Break(b.Context(), c.name, c.hold, by, false))
		}
		require.NoError(b, lease.Err())
		b.minis[0].Freeze()
		b.minis[2].Freeze()
		var failed *lockerr.Error
		require.ErrorAs(b, b.admin.Break(b.Context(), "n", lease.Hold(), by, true), &failed)
		require.Equal(b, "n", failed.Name)
		require.Equal(b, lockerr.OpBreak, failed.Op)
		require.Equal(b, lockerr.NoQuorum, failed.Kind)
		require.True(b, failed.Unknown, "it may run later")
		require.Equal(b, [2]int{2, 1}, [2]int{failed.Need, failed.Got})
		require.ErrorContains(b, failed, "mini-0:6379: no reply")
		require.ErrorContains(b, failed, "mini-2:6379: no reply")
		b.minis[0].Thaw()
		b.minis[2].Thaw()
	})
}

// Ping names what keeps a master from granting, with a cure if there is one, and writes nothing.
func TestPing(t *testing.T) {
	inBed(t, "of three", 3, func(b *bed) {
		require.NoError(b, b.take("n", fencing.Write).Release(b.Context()))
		before := b.keys()
		b.minis[1].Freeze()
		b.asked[2].Deny(func(cmd []string) string {
			if strings.HasPrefix(strings.ToUpper(cmd[0]), "EVAL") {
				return "NOPERM this user has no permissions to run the 'evalsha' command"
			}
			return ""
		})
		views, open := b.admin.Ping(b.Context())
		require.True(b, open)
		require.NoError(b, views[0].Err)
		var silence *lockerr.NoReply
		require.ErrorAs(b, views[1].Err, &silence)
		var cured *lockerr.Advised
		require.ErrorAs(b, views[2].Err, &cured)
		require.ErrorContains(b, cured, "NOPERM")
		b.minis[1].Thaw()
		require.Equal(b, before, b.keys())
	})
}
