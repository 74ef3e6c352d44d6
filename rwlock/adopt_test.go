package rwlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
	"github.com/seed74116694/fencelock/scripts"
)

// detach is Detach where it must succeed.
func detach(w *world, lease *rwlock.Lease, opts ...rwlock.LockOption) rwlock.Ticket {
	w.Helper()
	return expect.NoError(lease.Detach(w.Ctx, opts...)).In(w)
}

// refusedTicket checks that err is a ticket that is refused for this reason.
func refusedTicket(w *world, err error, reason string) {
	w.Helper()
	require.ErrorIs(w, err, rwlock.ErrTicket)
	_ = testkit.As[*rwlock.TicketError](w, err)
	require.ErrorContains(w, err, reason)
}

// nothingLeft checks that the locks are free, and in fake time that only tokens are left once tombstones have expired.
func nothingLeft(w *world, p *process) {
	w.Helper()
	p.RequireFree("n")
	if w.Mini != nil {
		w.Pass(time.Minute)
		p.Section("n")
		w.OnlyTokensLeft()
	}
}

// A lease goes from process to process, in either mode, with a larger token each time, and no waiter comes in between.
func TestALeaseChangesProcess(t *testing.T) {
	everywhere(t, withTwo(func(w *world, p, q *process) {
		for _, mode := range bothModes {
			lease := p.Take("n", mode)
			ctx, ended, token := lease.Context(w.Ctx), watch(lease), lease.Token()
			next := q.Queue("n", rwlock.Write)
			ticket := detach(w, lease)
			require.ErrorIs(w, context.Cause(ctx), rwlock.ErrReleased, "before the ticket is there")
			w.Eventually("its contexts have ended", func() bool { return ended.before(time.Now()) })
			require.ErrorIs(w, lease.Err(), rwlock.ErrReleased)
			require.NoError(w, lease.Release(w.Ctx), "it does nothing")
			require.Zero(w, p.Stats().Held)
			require.LessOrEqual(w, ticket.Remaining, w.TTL)
			w.RequireLess(w.TTL*9/10, ticket.Remaining, "a full TTL")
			require.Len(w, w.Inspect("n").Holders, 1)

			text := expect.NoError(json.Marshal(ticket)).In(w)
			for i := range 3 {
				var read rwlock.Ticket
				require.NoError(w, json.Unmarshal(text, &read))
				by := []*process{q, p, q}[i]
				lease := expect.NoError(by.Adopt(w.Ctx, read)).In(w)
				require.Equal(w, mode, lease.Mode())
				require.Greater(w, lease.Token(), token)
				require.NoError(w, lease.Err())
				require.NoError(w, lease.Renew(w.Ctx))
				require.Len(w, w.Inspect("n").Holders, 1)
				token = lease.Token()
				refusedTicket(w, expect.ErrorOf(p.Adopt(w.Ctx, read)), "gone")
				if i == 2 {
					require.NoError(w, lease.Release(w.Ctx))
					break
				}
				text = expect.NoError(json.Marshal(detach(w, lease))).In(w)
			}
			last := next.Granted()
			require.Greater(w, last.Token(), token)
			w.Release(last)
		}
		require.EqualValues(w, 4, q.Stats().Adopted)
		require.EqualValues(w, 2, p.Stats().Adopted)
		require.EqualValues(w, 4, p.Stats().Detached)
		nothingLeft(w, p)
	}))
}

// A ticket that no process adopts runs out after its TTL, and one of WithTTL after that.
func TestATicketRunsOut(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		for _, mode := range bothModes {
			for _, ttl := range []time.Duration{w.TTL, w.TTL / 5, 3 * w.TTL} {
				lease := p.Take("n", mode)
				w.Pass(w.TTL / 2)
				at := time.Now()
				ticket := detach(w, lease, rwlock.WithTTL(ttl))
				next := q.Acquire(w.Ctx, "n", rwlock.Write)
				w.Release(next.Granted())
				require.GreaterOrEqual(w, next.At.Sub(at), ticket.Remaining)
				require.LessOrEqual(w, next.At.Sub(at), ttl+w.Refresh())
				require.Greater(w, ticket.Remaining, ttl*9/10)
				refusedTicket(w, expect.ErrorOf(q.Adopt(w.Ctx, ticket)), "its hold is gone")
			}
		}
		nothingLeft(w, p)
	}))
}

// Without an answer there is no ticket, and the lease is held on.
func TestDetachNeedsARenewal(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, p *process, lease *rwlock.Lease) {
		ctx := lease.Context(w.Ctx)
		p.Link.Hold(testredis.Both)
		require.ErrorIs(w, expect.ErrorOf(lease.Detach(w.Ctx)), rwlock.ErrNoQuorum)
		require.Error(w, expect.ErrorOf(lease.Detach(w.Soon(time.Millisecond))))
		require.NoError(w, lease.Err())
		require.NoError(w, ctx.Err())
		p.Link.Restore()
		w.Pass(2 * w.TTL)
		require.NoError(w, lease.Err(), "it is renewed")
		require.ErrorIs(w, expect.ErrorOf(lease.Detach(ended(w.Ctx))), context.Canceled)
		require.NoError(w, lease.Err())
		w.Release(lease)
		require.ErrorIs(w, expect.ErrorOf(lease.Detach(w.Ctx)), rwlock.ErrReleased)

		lost := p.Take("n", rwlock.Write)
		w.FlushAll()
		require.ErrorIs(w, expect.ErrorOf(lost.Detach(w.Ctx)), rwlock.ErrLost)
		require.Zero(w, p.Stats().Detached)
	}))
}

// Close of the process that has detached a lease leaves it alone, and so does a late renewal.
func TestADetachedLeaseIsLeftAlone(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		lease := p.Take("n", rwlock.Write)
		ticket := detach(w, lease)
		require.NoError(w, lease.Release(w.Ctx))
		require.NoError(w, p.Close())
		require.Len(w, w.Inspect("n").Holders, 1)
		adopted := expect.NoError(q.Adopt(w.Ctx, ticket)).In(w)
		w.Pass(3 * w.TTL)
		require.NoError(w, adopted.Err())
		require.Len(w, w.Inspect("n").Holders, 1)
		w.Release(adopted)
		nothingLeft(w, q)
	}))
}

// Of adopters that come together at most one succeeds, and one of them does where each can be served.
func TestAtMostOneAdopts(t *testing.T) {
	everywhere(t, withOne(func(w *world, p *process) {
		var others []*process
		for range 4 {
			others = append(others, w.Process())
		}
		for _, mode := range bothModes {
			ticket := detach(w, p.Take("n", mode))
			var mu sync.Mutex
			var adopted []*rwlock.Lease
			var all sync.WaitGroup
			for _, q := range others {
				all.Go(func() {
					lease, err := q.Adopt(w.Ctx, ticket)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						adopted = append(adopted, lease)
					} else if !errors.Is(err, rwlock.ErrTicket) && !errors.Is(err, rwlock.ErrNotAcquired) {
						w.Errorf("%v", err)
					}
				})
			}
			all.Wait()
			require.Len(w, adopted, 1)
			w.Release(adopted...)
		}
		nothingLeft(w, p)
	}))
}

// An adopter that dies before the detached hold is released leaves the ticket to others, once its hold has expired.
func TestAnAdopterDies(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q, r := w.Process(), w.Process(), w.Process()
		for _, mode := range bothModes {
			q.Section("warm up")
			ticket := detach(w, p.Take("n", mode), rwlock.WithTTL(10*w.TTL))
			q.Link.Delay(20 * time.Millisecond)
			dying := w.Call(w.Ctx, func(ctx context.Context) error { return expect.ErrorOf(q.Adopt(ctx, ticket)) })
			w.Pass(30 * time.Millisecond)
			q.CutOff(0) // its adoption has been granted
			require.Len(w, w.Inspect("n").Holders, 2)
			expect.Fails(w, expect.ErrorOf(r.Adopt(w.Ctx, ticket)), rwlock.ErrNotAcquired, "another process is adopting it")
			err := dying.Result()
			require.ErrorIs(w, err, rwlock.ErrNoQuorum)
			require.False(w, errors.Is(err, rwlock.ErrTicket))
			w.Pass(w.TTL)
			q.Link.Delay(0)
			lease := expect.NoError(r.Adopt(w.Ctx, ticket)).In(w)
			q.Link.Restore()
			w.Pass(w.TTL)
			require.NoError(w, lease.Err())
			w.Release(lease)
			w.Pass(w.TTL)
		}
		nothingLeft(w, p)
	})
}

// The end of ctx leaves the ticket as it was, unless the detached hold was being released.
func TestAdoptEndsWithItsContext(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		for _, mode := range bothModes {
			ticket := detach(w, p.Take("n", mode))
			expect.Fails(w, expect.ErrorOf(q.Adopt(ended(w.Ctx), ticket)), rwlock.ErrNotAcquired, context.Canceled)

			q.Link.Delay(20 * time.Millisecond)
			require.ErrorIs(w, expect.ErrorOf(q.Adopt(w.Soon(30*time.Millisecond), ticket)), context.DeadlineExceeded)
			w.Pass(100 * time.Millisecond)
			q.Link.Delay(0)
			ticket = detach(w, expect.NoError(q.Adopt(w.Ctx, ticket)).In(w))

			q.Link.Delay(20 * time.Millisecond)
			_, err := q.Adopt(w.Soon(50*time.Millisecond), ticket)
			require.ErrorIs(w, err, context.DeadlineExceeded)
			require.True(w, rwlock.Indeterminate(err))
			w.Pass(100 * time.Millisecond)
			q.Link.Delay(0)
			refusedTicket(w, expect.ErrorOf(q.Adopt(w.Ctx, ticket)), "gone")
			p.RequireFree("n")
		}
		nothingLeft(w, p)
	}))
}

// A hold that an operator has broken is not adopted.
func TestABrokenHoldIsNotAdopted(t *testing.T) {
	everywhere(t, withTwo(func(w *world, p, q *process) {
		for _, mode := range bothModes {
			ticket := detach(w, p.Take("n", mode))
			require.NoError(w, q.Break(w.Ctx, "n", ticket.Hold, "stuck", rwlock.BreakNow()))
			_, err := q.Adopt(w.Ctx, ticket)
			refusedTicket(w, err, "broken")
			require.Equal(w, "stuck", testkit.As[*rwlock.BrokenError](w, err).Why)
		}
	}))
}

// The adopter's minimum begins with the grant of the detached lease; of a converted one with the grant that the
// conversion made, which is all that the adopter knows of: it ends later than that of the first grant.
func TestAnAdoptedLeaseKeepsItsMinimum(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		for _, mode := range bothModes {
			for _, converts := range []bool{false, true} {
				least := 4 * w.TTL
				began := time.Now()
				lease := p.Take("n", mode, rwlock.WithMinHold(least))
				w.Pass(w.TTL)
				if convert := map[rwlock.Mode]func(context.Context) error{
					rwlock.Read: lease.Upgrade, rwlock.Write: lease.Downgrade,
				}[mode]; converts {
					require.NoError(w, convert(w.Ctx))
					began = time.Now()
				}
				ticket := detach(w, lease)
				w.Pass(w.TTL / 2)
				require.NoError(w, giveBack(q.Adopt(w.Ctx, ticket, rwlock.WithMinHold(least))))
				next := p.Acquire(w.Ctx, "n", rwlock.Write)
				w.Release(next.Granted())
				require.GreaterOrEqual(w, next.At.Sub(began), least-10*time.Millisecond)
				require.LessOrEqual(w, next.At.Sub(began), least+w.Refresh())
			}
		}
	}))
}

// The hooks learn of both calls.
func TestTraceOfAnAdoption(t *testing.T) {
	inFakeTime(t, withTrace(func(w *world, p *process, d *testkit.Trace) {
		ticket := detach(w, p.Take("n", rwlock.Write))
		require.NoError(w, giveBack(p.Adopt(w.Ctx, ticket)))
		require.ErrorIs(w, expect.ErrorOf(p.Adopt(w.Ctx, ticket)), rwlock.ErrTicket)
		w.Settle()
		require.Equal(w, []string{
			"acquired n", "renewed n", "detached n", "released n", "acquired n", "released n", "failed n",
		}, reported(d))
	}))
}

// A ticket whose hold is gone when the adopter has it released is not adopted, although it had been granted the lock.
func TestATicketThatRunsOutWhileItIsAdopted(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q, r := w.Process(), w.Process(), w.Process()
		for _, mode := range bothModes {
			q.Section("warm up")
			ticket := detach(w, p.Take("n", mode), rwlock.WithTTL(100*time.Millisecond))
			q.Link.DelayDir(testredis.ToClient, 150*time.Millisecond)
			adoption := w.Call(w.Ctx, func(ctx context.Context) error { return expect.ErrorOf(q.Adopt(ctx, ticket)) })
			w.Pass(120 * time.Millisecond)
			_, err := r.Try("n", rwlock.Write) // it removes what has expired
			require.ErrorIs(w, err, rwlock.ErrNotAcquired)
			refusedTicket(w, adoption.Result(), "gone")
			q.Link.Delay(0)
			w.Pass(w.TTL / 2)
			require.Zero(w, q.Stats().Held)
			r.RequireFree("n")
		}
	})
}

// An adoption that fails after the masters have granted it is no lease, also to the hooks and the counters.
func TestAFailedAdoptionIsNoLease(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var d testkit.Trace
		p, q := w.Process(), w.Process(d.Option())
		q.WarmUp()
		acquired := q.Stats().Acquired
		ticket := detach(w, p.Take("n", rwlock.Write))
		q.Link.Deny(answering("OOM command not allowed when used memory > 'maxmemory'.", w.Running(scripts.Release)))
		expect.Fails(w, expect.ErrorOf(q.Adopt(w.Ctx, ticket)), rwlock.ErrNoQuorum, "it can be adopted again")
		q.Link.Deny(nil)
		require.Zero(w, q.Stats().Held)
		require.Zero(w, q.Stats().Adopted)
		require.Equal(w, acquired, q.Stats().Acquired)
		w.Eventually("its hold is released", func() bool { return len(w.Inspect("n").Holders) == 1 })
		require.NoError(w, giveBack(p.Adopt(w.Ctx, ticket)), "the detached hold was not released in the background")
		require.NoError(w, q.Close())
		seen := reported(&d)
		require.Equal(w, "failed n", seen[len(seen)-1])
		require.ErrorIs(w, d.Last("failed").Err, rwlock.ErrNoQuorum)
		require.NotContains(w, seen[:len(seen)-1], "failed n")
		seen = slices.DeleteFunc(seen, func(event string) bool { return !strings.HasPrefix(event, "acquired") })
		require.Len(w, seen, int(acquired))
	})
}

// While a renewal with a shorter TTL may still arrive, a ticket says no more than that one leaves.
func TestATicketCountsOnNoLongerThanALateRenewalAllows(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, p *process, lease *rwlock.Lease) {
		p.Link.Blackhole(testredis.ToClient)
		require.Error(w, lease.Renew(w.Ctx))
		p.Link.Cut()
		p.Link.Restore()
		w.Eventually("it is renewed again", func() bool { return time.Until(lease.Deadline()) > w.TTL*9/10 })
		require.LessOrEqual(w, detach(w, lease, rwlock.WithTTL(time.Hour)).Remaining, w.TTL)
	}))
}

// Close ends an adoption under way, and leaves the lock free or the ticket good.
func TestCloseBesideAdopt(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		for wait := range 12 {
			q := w.ProcessAt(2 * time.Millisecond)
			q.WarmUp()
			ticket := detach(w, p.Take("n", rwlock.Write))
			adoption := w.Call(w.Ctx, func(ctx context.Context) error { return expect.ErrorOf(q.Adopt(ctx, ticket)) })
			w.Pass(time.Duration(wait) * time.Millisecond)
			require.NoError(w, q.Close())
			if err := adoption.Result(); err != nil {
				require.ErrorIs(w, err, rwlock.ErrClosed)
			}
			if err := giveBack(p.Adopt(w.Ctx, ticket)); err != nil {
				require.ErrorIs(w, err, rwlock.ErrTicket)
			}
			p.RequireFree("n")
		}
	}))
}

// Bad tickets are refused with their reason, and nothing is sent.
func TestBadTicketsAreRefused(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process(rwlock.WithPrefix("other"))
		good := detach(w, p.Take("n", rwlock.Write))
		requests := w.Requests(p, q)
		for reason, change := range map[string]func(*rwlock.Ticket){
			"empty":            func(t *rwlock.Ticket) { *t = rwlock.Ticket{} },
			"version is 2":     func(t *rwlock.Ticket) { t.Version = 2 },
			`prefix is "x"`:    func(t *rwlock.Ticket) { t.Prefix = "x" },
			"other masters":    func(t *rwlock.Ticket) { t.Set = "01JSET" },
			"name of 0 bytes":  func(t *rwlock.Ticket) { t.Name = "" },
			"name of 513":      func(t *rwlock.Ticket) { t.Name = strings.Repeat("n", 513) },
			"valid UTF-8":      func(t *rwlock.Ticket) { t.Name = "\xff" },
			"mode is none":     func(t *rwlock.Ticket) { t.Mode = 0 },
			"mode is Mode(3)":  func(t *rwlock.Ticket) { t.Mode = 3 },
			"hold or owner":    func(t *rwlock.Ticket) { t.Hold = "x" },
			"owner is damaged": func(t *rwlock.Ticket) { t.Owner = "" },
			"token is 0":       func(t *rwlock.Ticket) { t.Token = 0 },
			"no lock has":      func(t *rwlock.Ticket) { t.Token = 1 << 53 },
			"secret is damaged": func(t *rwlock.Ticket) {
				*t = rwlock.Ticket{Version: 1, Name: "n", Mode: t.Mode, Owner: t.Owner, Hold: t.Hold, Token: t.Token}
			},
			"remaining time": func(t *rwlock.Ticket) { t.Remaining = -1 },
		} {
			bad := good
			change(&bad)
			refusedTicket(w, expect.ErrorOf(p.Adopt(w.Ctx, bad)), reason)
		}
		const elsewhere = `its prefix is "fencelock", and that of this locker is "other"`
		refusedTicket(w, expect.ErrorOf(q.Adopt(w.Ctx, good)), elsewhere)
		refusedOption(w.T, expect.ErrorOf(p.Adopt(w.Ctx, good, nil)), "option", "nil", "must not be nil")
		refusedOption(w.T, expect.ErrorOf(p.Adopt(w.Ctx, good, rwlock.WithTTL(1))), "WithTTL", "1ns", "100ms")
		require.Empty(w, requests.All())

		for _, forge := range []func(*rwlock.Ticket){
			func(t *rwlock.Ticket) { t.Token++ },
			func(t *rwlock.Ticket) { t.Mode = rwlock.Read },
			func(t *rwlock.Ticket) { t.Hold = t.Hold[:25] + "0" },
			func(t *rwlock.Ticket) { t.Name = "m" },
			func(t *rwlock.Ticket) { *t = withSecret(w, *t, strings.Repeat("x", 26)) },
		} {
			bad := good
			if forge(&bad); bad == good {
				bad.Hold = bad.Hold[:25] + "1"
			}
			refusedTicket(w, expect.ErrorOf(p.Adopt(w.Ctx, bad)), "gone")
		}
		require.NoError(w, giveBack(p.Adopt(w.Ctx, good)), "none of it has used the ticket up")
		require.NoError(w, p.Close())
		require.ErrorIs(w, expect.ErrorOf(p.Adopt(w.Ctx, good)), rwlock.ErrClosed)
	})
}

func TestDetachRefuses(t *testing.T) {
	inFakeTime(t, withLease(func(w *world, p *process, lease *rwlock.Lease) {
		for _, c := range []struct {
			opt                 rwlock.LockOption
			option, value, rule string
		}{
			{nil, "option", "nil", "must not be nil"},
			{rwlock.WithTTL(time.Millisecond), "WithTTL", "1ms", "100ms"},
			{rwlock.WithTTL(25 * time.Hour), "WithTTL", "25h", "24h"},
			{rwlock.WithMeta("x"), "Detach", "option", "must be WithTTL"},
			{rwlock.WithMinHold(time.Second), "Detach", "option", "must be WithTTL"},
			{rwlock.WithoutRenewal(), "Detach", "option", "must be WithTTL"},
		} {
			refusedOption(w.T, expect.ErrorOf(lease.Detach(w.Ctx, c.opt)), c.option, c.value, c.rule)
			require.NoError(w, lease.Err())
		}
		w.Release(lease)

		reader, other := p.Take("n", rwlock.Read), w.Process().Take("n", rwlock.Read)
		upgrade := w.Call(w.Ctx, reader.Upgrade)
		w.UntilWaiting("n", 1)
		require.ErrorIs(w, expect.ErrorOf(reader.Detach(w.Ctx)), rwlock.ErrUpgrade)
		w.Release(other)
		require.NoError(w, upgrade.Result())
		w.Release(reader)
	}))
}

// A renewal from before Detach has no mark, and its answer is not taken for one that has.
func TestARenewalFromBeforeDetachMarksNothing(t *testing.T) {
	inFakeTime(t, withTwo(func(w *world, p, q *process) {
		other, lease := p.Take("m", rwlock.Write), p.Take("n", rwlock.Write)
		p.Link.Hold(testredis.ToClient)
		renewals := w.Call(w.Ctx, other.Renew)
		w.Pass(time.Millisecond)
		_ = lease.Renew(w.Soon(time.Millisecond)) // it waits for the answer to the other one
		w.Pass(1500 * time.Millisecond)           // its round is over, and the next has not begun
		var ticket rwlock.Ticket
		detached := w.Call(w.Ctx, func(ctx context.Context) (err error) {
			ticket, err = lease.Detach(ctx)
			return err
		})
		w.Pass(time.Millisecond)
		p.Link.Restore()
		_ = renewals.Result()
		require.NoError(w, detached.Result())
		w.Release(expect.NoError(q.Adopt(w.Ctx, ticket)).In(w), other)
	}))
}

// Foreign and damaged JSON is refused, and a ticket does not change on its way.
func TestTicketsAsJSON(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		name := "orders/\"42\"\n<ü>"
		ticket := detach(w, p.Take(name, rwlock.Read))
		text := expect.NoError(json.Marshal(ticket)).In(w)
		var fields map[string]any
		require.NoError(w, json.Unmarshal(text, &fields))
		require.Equal(w, map[string]any{
			"version": 1.0, "prefix": "fencelock", "name": name, "mode": "read", "owner": ticket.Owner, "hold": ticket.Hold,
			"token": ticket.Token.String(), "secret": secretOf(w, ticket),
			"remaining_ms": float64(ticket.Remaining.Milliseconds()),
		}, fields)
		var read rwlock.Ticket
		require.NoError(w, json.Unmarshal(text, &read))
		ticket.Remaining = ticket.Remaining.Truncate(time.Millisecond)
		require.Equal(w, ticket, read)
		require.ErrorIs(w, expect.ErrorOf(json.Marshal(rwlock.Ticket{})), rwlock.ErrTicket)

		for field, values := range map[string][]any{
			"version": {0, 2, -1, "1", nil}, "name": {"", strings.Repeat("n", 600), 5, nil}, "mode": {"none", "x", 1, ""},
			"owner": {"", "x"}, "hold": {"", "x", ticket.Hold + "0", 7}, "token": {"0", "-1", "9007199254740992", "x", 5},
			"secret": {"", "x", nil, 5, strings.Repeat("x", 129)}, "remaining_ms": {-1, 90_000_000, 1e30, "5", 0.5},
		} {
			for _, value := range values {
				bad := maps.Clone(fields)
				bad[field] = value
				refusedTicket(w, json.Unmarshal(expect.NoError(json.Marshal(bad)).In(w), &read), "")
				require.Equal(w, ticket, read, "unchanged")
			}
		}
		for _, foreign := range []string{`{}`, `{"a":1}`, `[]`, `5`, `"x"`} {
			refusedTicket(w, json.Unmarshal([]byte(foreign), &read), "")
		}
		require.NoError(w, json.Unmarshal([]byte("null"), &read))
	}))
}

// No text of a ticket shows its hold.
func TestATicketKeepsItsSecret(t *testing.T) {
	inFakeTime(t, func(w *world) {
		ticket := detach(w, w.Process().Take("n", rwlock.Write))
		var log strings.Builder
		logger := slog.New(slog.NewJSONHandler(&log, nil))
		logger.Info("x", "ticket", ticket, "pointer", &ticket)
		fmt.Fprintf(&log, "%v %+v %s %#v %v %q", ticket, ticket, ticket, ticket, &ticket, ticket)
		require.NotContains(w, log.String(), ticket.Hold)
		type job struct{ ticket rwlock.Ticket }
		fmt.Fprintf(&log, "%v %+v %#v %v", job{ticket}, &job{ticket}, []job{{ticket}}, map[string]job{"a": {ticket}})
		require.NotContains(w, log.String(), secretOf(w, ticket))
		require.Contains(w, ticket.String(), `write lock "n", token `+ticket.Token.String())
	})
}

// secretOf returns what the JSON of a ticket alone has.
func secretOf(w *world, ticket rwlock.Ticket) string {
	var form struct{ Secret string }
	require.NoError(w, json.Unmarshal(expect.NoError(json.Marshal(ticket)).In(w), &form))
	return form.Secret
}

func withSecret(w *world, ticket rwlock.Ticket, secret string) rwlock.Ticket {
	text := expect.NoError(json.Marshal(ticket)).In(w)
	var forged rwlock.Ticket
	require.NoError(w, json.Unmarshal([]byte(strings.Replace(string(text), secretOf(w, ticket), secret, 1)), &forged))
	return forged
}
