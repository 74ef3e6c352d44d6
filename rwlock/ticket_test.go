package rwlock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

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
			refusedTicket(w, errorOf(p.Adopt(w.Ctx, bad)), reason)
		}
		refusedTicket(w, errorOf(q.Adopt(w.Ctx, good)), `its prefix is "fencelock", and that of this locker is "other"`)
		refusedOption(w.T, errorOf(p.Adopt(w.Ctx, good, nil)), "option", "nil", "must not be nil")
		refusedOption(w.T, errorOf(p.Adopt(w.Ctx, good, rwlock.WithTTL(1))), "WithTTL", "1ns", "100ms")
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
			refusedTicket(w, errorOf(p.Adopt(w.Ctx, bad)), "gone")
		}
		adopted := got(p.Adopt(w.Ctx, good)).orFail(w, "none of it has used the ticket up")
		w.Release(adopted)
		require.NoError(w, p.Close())
		require.ErrorIs(w, errorOf(p.Adopt(w.Ctx, good)), rwlock.ErrClosed)
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
			refusedOption(w.T, errorOf(lease.Detach(w.Ctx, c.opt)), c.option, c.value, c.rule)
			require.NoError(w, lease.Err())
		}
		w.Release(lease)

		reader, other := p.Take("n", rwlock.Read), w.Process().Take("n", rwlock.Read)
		upgrade := upgrading(w, w.Ctx, reader)
		w.UntilWaiting("n", 1)
		require.ErrorIs(w, errorOf(reader.Detach(w.Ctx)), rwlock.ErrUpgrade)
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
		adopted := got(q.Adopt(w.Ctx, ticket)).orFail(w)
		w.Release(adopted, other)
	}))
}

// Foreign and damaged JSON is refused, and a ticket does not change on its way.
func TestTicketsAsJSON(t *testing.T) {
	inFakeTime(t, withOne(func(w *world, p *process) {
		name := "orders/\"42\"\n<ü>"
		ticket := detach(w, p.Take(name, rwlock.Read))
		text := got(json.Marshal(ticket)).orFail(w)
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
		require.ErrorIs(w, errorOf(json.Marshal(rwlock.Ticket{})), rwlock.ErrTicket)

		for field, values := range map[string][]any{
			"version": {0, 2, -1, "1", nil}, "name": {"", strings.Repeat("n", 600), 5, nil}, "mode": {"none", "x", 1, ""},
			"owner": {"", "x"}, "hold": {"", "x", ticket.Hold + "0", 7}, "token": {"0", "-1", "9007199254740992", "x", 5},
			"secret": {"", "x", nil, 5, strings.Repeat("x", 129)}, "remaining_ms": {-1, 90_000_000, 1e30, "5", 0.5},
		} {
			for _, value := range values {
				bad := map[string]any{}
				for k, v := range fields {
					bad[k] = v
				}
				bad[field] = value
				text := got(json.Marshal(bad)).orFail(w)
				refusedTicket(w, json.Unmarshal(text, &read), "")
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
	text := got(json.Marshal(ticket)).orFail(w)
	var form struct{ Secret string }
	require.NoError(w, json.Unmarshal(text, &form))
	return form.Secret
}

func withSecret(w *world, ticket rwlock.Ticket, secret string) rwlock.Ticket {
	text := got(json.Marshal(ticket)).orFail(w)
	var forged rwlock.Ticket
	require.NoError(w, json.Unmarshal([]byte(strings.Replace(string(text), secretOf(w, ticket), secret, 1)), &forged))
	return forged
}
