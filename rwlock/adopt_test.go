package rwlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// detach is Detach where it must succeed.
func detach(w *world, lease *rwlock.Lease, opts ...rwlock.LockOption) rwlock.Ticket {
	w.Helper()
	ticket, err := lease.Detach(w.Ctx, opts...)
	require.NoError(w, err)
	return ticket
}

// refusedTicket checks that err is a ticket that is refused for this reason.
func refusedTicket(w *world, err error, reason string) {
	w.Helper()
	require.ErrorIs(w, err, rwlock.ErrTicket)
	var refused *rwlock.TicketError
	require.ErrorAs(w, err, &refused)
	require.ErrorContains(w, err, reason)
}

// nothingLeft checks that the locks are free, and in fake time that no more than tokens are left once the tombstones of
// adopted holds have expired.
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
	everywhere(t, func(w *world) {
		p, q := w.Process(), w.Process()
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

			text, err := json.Marshal(ticket)
			require.NoError(w, err)
			for i := range 3 {
				var read rwlock.Ticket
				require.NoError(w, json.Unmarshal(text, &read))
				by := []*process{q, p, q}[i]
				lease, err := by.Adopt(w.Ctx, read)
				require.NoError(w, err)
				require.Equal(w, mode, lease.Mode())
				require.Greater(w, lease.Token(), token)
				require.NoError(w, lease.Err())
				require.NoError(w, lease.Renew(w.Ctx))
				require.Len(w, w.Inspect("n").Holders, 1)
				token = lease.Token()
				_, err = p.Adopt(w.Ctx, read)
				refusedTicket(w, err, "gone")
				if i == 2 {
					require.NoError(w, lease.Release(w.Ctx))
					break
				}
				text, err = json.Marshal(detach(w, lease))
				require.NoError(w, err)
			}
			last := next.Granted()
			require.Greater(w, last.Token(), token)
			w.Release(last)
		}
		require.EqualValues(w, 4, q.Stats().Adopted)
		require.EqualValues(w, 2, p.Stats().Adopted)
		require.EqualValues(w, 4, p.Stats().Detached)
		nothingLeft(w, p)
	})
}

// A ticket that no process adopts runs out after its TTL, and one of WithTTL after that.
func TestATicketRunsOut(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
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
				_, err := q.Adopt(w.Ctx, ticket)
				refusedTicket(w, err, "its hold is gone")
			}
		}
		nothingLeft(w, p)
	})
}

// Without an answer there is no ticket, and the lease is held on.
func TestDetachNeedsARenewal(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
		ctx := lease.Context(w.Ctx)
		p.Link.Hold(testredis.Both)
		_, err := lease.Detach(w.Ctx)
		require.ErrorIs(w, err, rwlock.ErrNoQuorum)
		_, err = lease.Detach(w.Soon(time.Millisecond))
		require.Error(w, err)
		require.NoError(w, lease.Err())
		require.NoError(w, ctx.Err())
		p.Link.Restore()
		w.Pass(2 * w.TTL)
		require.NoError(w, lease.Err(), "it is renewed")
		gone, cancel := context.WithCancel(w.Ctx)
		cancel()
		_, err = lease.Detach(gone)
		require.ErrorIs(w, err, context.Canceled)
		require.NoError(w, lease.Err())
		w.Release(lease)
		_, err = lease.Detach(w.Ctx)
		require.ErrorIs(w, err, rwlock.ErrReleased)

		lost := p.Take("n", rwlock.Write)
		w.FlushAll()
		_, err = lost.Detach(w.Ctx)
		require.ErrorIs(w, err, rwlock.ErrLost)
		require.Zero(w, p.Stats().Detached)
	})
}

// Close of the process that has detached a lease leaves it alone, and so does a late renewal.
func TestADetachedLeaseIsLeftAlone(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		lease := p.Take("n", rwlock.Write)
		ticket := detach(w, lease)
		require.NoError(w, lease.Release(w.Ctx))
		require.NoError(w, p.Close())
		require.Len(w, w.Inspect("n").Holders, 1)
		adopted, err := q.Adopt(w.Ctx, ticket)
		require.NoError(w, err)
		w.Pass(3 * w.TTL)
		require.NoError(w, adopted.Err())
		require.Len(w, w.Inspect("n").Holders, 1)
		w.Release(adopted)
		nothingLeft(w, q)
	})
}

// Of adopters that come together at most one succeeds, and one of them does where each can be served.
func TestAtMostOneAdopts(t *testing.T) {
	everywhere(t, func(w *world) {
		p := w.Process()
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
	})
}

// An adopter that dies before the detached hold is released leaves the ticket to others, once its hold has expired.
func TestAnAdopterDies(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q, r := w.Process(), w.Process(), w.Process()
		for _, mode := range bothModes {
			q.Section("warm up")
			ticket := detach(w, p.Take("n", mode), rwlock.WithTTL(10*w.TTL))
			q.Link.Delay(20 * time.Millisecond)
			dying := w.Call(w.Ctx, func(ctx context.Context) error {
				_, err := q.Adopt(ctx, ticket)
				return err
			})
			w.Pass(30 * time.Millisecond)
			q.Link.Refuse() // its adoption has been granted
			q.Link.Cut()
			require.Len(w, w.Inspect("n").Holders, 2)
			_, err := r.Adopt(w.Ctx, ticket)
			require.ErrorIs(w, err, rwlock.ErrNotAcquired)
			require.ErrorContains(w, err, "another process is adopting it")
			err = dying.Result()
			require.ErrorIs(w, err, rwlock.ErrNoQuorum)
			require.False(w, errors.Is(err, rwlock.ErrTicket))
			w.Pass(w.TTL)
			q.Link.Delay(0)
			lease, err := r.Adopt(w.Ctx, ticket)
			require.NoError(w, err)
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
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		for _, mode := range bothModes {
			ticket := detach(w, p.Take("n", mode))
			gone, cancel := context.WithCancel(w.Ctx)
			cancel()
			_, err := q.Adopt(gone, ticket)
			require.ErrorIs(w, err, rwlock.ErrNotAcquired)
			require.ErrorIs(w, err, context.Canceled)

			q.Link.Delay(20 * time.Millisecond)
			_, err = q.Adopt(w.Soon(30*time.Millisecond), ticket)
			require.ErrorIs(w, err, context.DeadlineExceeded)
			w.Pass(100 * time.Millisecond)
			q.Link.Delay(0)
			lease, err := q.Adopt(w.Ctx, ticket)
			require.NoError(w, err)
			ticket = detach(w, lease)

			q.Link.Delay(20 * time.Millisecond)
			_, err = q.Adopt(w.Soon(50*time.Millisecond), ticket)
			require.ErrorIs(w, err, context.DeadlineExceeded)
			require.True(w, rwlock.Indeterminate(err))
			w.Pass(100 * time.Millisecond)
			q.Link.Delay(0)
			_, err = q.Adopt(w.Ctx, ticket)
			refusedTicket(w, err, "gone")
			p.RequireFree("n")
		}
		nothingLeft(w, p)
	})
}

// A hold that an operator has broken is not adopted.
func TestABrokenHoldIsNotAdopted(t *testing.T) {
	everywhere(t, func(w *world) {
		p, q := w.Process(), w.Process()
		for _, mode := range bothModes {
			ticket := detach(w, p.Take("n", mode))
			require.NoError(w, q.Break(w.Ctx, "n", ticket.Hold, "stuck", rwlock.BreakNow()))
			_, err := q.Adopt(w.Ctx, ticket)
			refusedTicket(w, err, "broken")
			var broken *rwlock.BrokenError
			require.ErrorAs(w, err, &broken)
			require.Equal(w, "stuck", broken.Why)
		}
	})
}

// The adopter's minimum begins with the grant of the detached lease.
func TestAnAdoptedLeaseKeepsItsMinimum(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p, q := w.Process(), w.Process()
		for _, mode := range bothModes {
			least := 4 * w.TTL
			began := time.Now()
			lease := p.Take("n", mode, rwlock.WithMinHold(least))
			w.Pass(w.TTL)
			ticket := detach(w, lease)
			w.Pass(w.TTL / 2)
			adopted, err := q.Adopt(w.Ctx, ticket, rwlock.WithMinHold(least))
			require.NoError(w, err)
			require.NoError(w, adopted.Release(w.Ctx))
			next := p.Acquire(w.Ctx, "n", rwlock.Write)
			w.Release(next.Granted())
			require.GreaterOrEqual(w, next.At.Sub(began), least-10*time.Millisecond)
			require.LessOrEqual(w, next.At.Sub(began), least+w.Refresh())
		}
	})
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
			"remaining time":   func(t *rwlock.Ticket) { t.Remaining = -1 },
		} {
			bad := good
			change(&bad)
			_, err := p.Adopt(w.Ctx, bad)
			refusedTicket(w, err, reason)
		}
		_, err := q.Adopt(w.Ctx, good)
		refusedTicket(w, err, `its prefix is "fencelock", and that of this locker is "other"`)
		_, err = p.Adopt(w.Ctx, good, nil)
		refusedOption(w.T, err, "option", "nil", "must not be nil")
		_, err = p.Adopt(w.Ctx, good, rwlock.WithTTL(1))
		refusedOption(w.T, err, "WithTTL", "1ns", "100ms")
		_, err = p.Adopt(w.Ctx, good, rwlock.WithLinger(time.Second))
		refusedOption(w.T, err, "WithLinger", "1s", "RWMutex")
		_, err = new(rwlock.Locker).Adopt(w.Ctx, good)
		refusedOption(w.T, err, "Locker", "zero value", "made by New")
		require.Empty(w, requests.All())

		for _, forge := range []func(*rwlock.Ticket){
			func(t *rwlock.Ticket) { t.Token++ },
			func(t *rwlock.Ticket) { t.Mode = rwlock.Read },
			func(t *rwlock.Ticket) { t.Hold = t.Hold[:25] + "0" },
			func(t *rwlock.Ticket) { t.Name = "m" },
		} {
			bad := good
			if forge(&bad); bad == good {
				bad.Hold = bad.Hold[:25] + "1"
			}
			_, err := p.Adopt(w.Ctx, bad)
			refusedTicket(w, err, "gone")
		}
		adopted, err := p.Adopt(w.Ctx, good)
		require.NoError(w, err, "none of it has used the ticket up")
		w.Release(adopted)
		require.NoError(w, p.Close())
		_, err = p.Adopt(w.Ctx, good)
		require.ErrorIs(w, err, rwlock.ErrClosed)
	})
}

func TestDetachRefuses(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		lease := p.Take("n", rwlock.Write)
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
			_, err := lease.Detach(w.Ctx, c.opt)
			refusedOption(w.T, err, c.option, c.value, c.rule)
			require.NoError(w, lease.Err())
		}
		_, err := new(rwlock.Lease).Detach(w.Ctx)
		refusedOption(w.T, err, "Lease", "zero value", "made by a Locker")
		_, err = (*rwlock.Lease)(nil).Detach(w.Ctx)
		refusedOption(w.T, err, "Lease", "nil", "made by a Locker")
		w.Release(lease)

		reader, other := p.Take("n", rwlock.Read), w.Process().Take("n", rwlock.Read)
		upgrade := upgrading(w, w.Ctx, reader)
		w.UntilWaiting("n", 1)
		_, err = reader.Detach(w.Ctx)
		require.ErrorIs(w, err, rwlock.ErrUpgrade)
		w.Release(other)
		require.NoError(w, upgrade.Result())
		w.Release(reader)
	})
}

// Foreign and damaged JSON is refused, and a ticket does not change on its way.
func TestTicketsAsJSON(t *testing.T) {
	inFakeTime(t, func(w *world) {
		p := w.Process()
		name := "orders/\"42\"\n<ü>"
		ticket := detach(w, p.Take(name, rwlock.Read))
		text, err := json.Marshal(ticket)
		require.NoError(w, err)
		var fields map[string]any
		require.NoError(w, json.Unmarshal(text, &fields))
		require.Equal(w, map[string]any{
			"version": 1.0, "prefix": "fencelock", "name": name, "mode": "read", "owner": ticket.Owner, "hold": ticket.Hold,
			"token": ticket.Token.String(), "remaining_ms": float64(ticket.Remaining.Milliseconds()),
		}, fields)
		var read rwlock.Ticket
		require.NoError(w, json.Unmarshal(text, &read))
		ticket.Remaining = ticket.Remaining.Truncate(time.Millisecond)
		require.Equal(w, ticket, read)
		_, err = json.Marshal(rwlock.Ticket{})
		require.ErrorIs(w, err, rwlock.ErrTicket)

		for field, values := range map[string][]any{
			"version": {0, 2, -1, "1", nil}, "name": {"", strings.Repeat("n", 600), 5, nil}, "mode": {"none", "x", 1, ""},
			"owner": {"", "x"}, "hold": {"", "x", ticket.Hold + "0", 7}, "token": {"0", "-1", "9007199254740992", "x", 5},
			"remaining_ms": {-1, 90_000_000, 1e30, "5", 0.5},
		} {
			for _, value := range values {
				bad := map[string]any{}
				for k, v := range fields {
					bad[k] = v
				}
				bad[field] = value
				text, err := json.Marshal(bad)
				require.NoError(w, err)
				refusedTicket(w, json.Unmarshal(text, &read), "")
				require.Equal(w, ticket, read, "unchanged")
			}
		}
		for _, foreign := range []string{`{}`, `{"a":1}`, `[]`, `5`, `"x"`} {
			refusedTicket(w, json.Unmarshal([]byte(foreign), &read), "")
		}
		require.NoError(w, json.Unmarshal([]byte("null"), &read))
	})
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
		require.Contains(w, ticket.String(), `write lock "n", token `+ticket.Token.String())
	})
}

// The hooks learn of both calls.
func TestTraceOfAnAdoption(t *testing.T) {
	inFakeTime(t, func(w *world) {
		var mu sync.Mutex
		var seen []string
		note := func(what string) func(context.Context, rwlock.TraceEvent) {
			return func(_ context.Context, e rwlock.TraceEvent) {
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, fmt.Sprint(what, " ", e.Name))
			}
		}
		p := w.Process(rwlock.WithTrace(&rwlock.Trace{
			Acquired: note("acquired"), Detached: note("detached"), Released: note("released"),
			Failed: func(ctx context.Context, e rwlock.TraceEvent, err error) {
				require.ErrorIs(w, err, rwlock.ErrTicket)
				note("failed")(ctx, e)
			},
		}))
		lease := p.Take("n", rwlock.Write)
		ticket := detach(w, lease)
		adopted, err := p.Adopt(w.Ctx, ticket)
		require.NoError(w, err)
		_, err = p.Adopt(w.Ctx, ticket)
		require.ErrorIs(w, err, rwlock.ErrTicket)
		w.Release(adopted)
		require.NoError(w, p.Close())
		require.Equal(w, []string{
			"acquired n", "detached n", "released n", "acquired n", "failed n", "released n",
		}, seen)
		stats := p.Stats()
		require.EqualValues(w, 2, stats.Acquired)
		require.EqualValues(w, 1, stats.Adopted)
		require.EqualValues(w, 1, stats.Detached)
		require.EqualValues(w, 1, stats.Failed.Refused)
		require.Zero(w, stats.Held)
	})
}
