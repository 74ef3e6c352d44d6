package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/transport"
)

// Waiter is one queued hold as a master shows it.
type Waiter struct {
	Owner, Hold, Meta string
	Mode              fencing.Mode
	Waited            time.Duration
}

// View is a lock as one master shows it.
type View struct {
	Index   int
	Addr    string
	Mode    fencing.Mode // of the holders; without meaning if there are none
	Token   fencing.Token
	Holders []Holder
	Waiters []Waiter
	Err     error
}

// Inspect asks every master for the state of the lock, and changes nothing. Each view is of one master only: a lock
// that one of several masters shows as held may have no holder, if no quorum shows the same. open is false after Close.
func (e *Engine) Inspect(ctx context.Context, name string) (all []View, open bool) {
	if e.registry.isClosed() {
		return nil, false
	}
	k := e.keys.all(e.keys.of(name))
	views := make(chan View, len(e.masters))
	for _, m := range e.masters {
		ask := func() {
			bounded, cancel := context.WithTimeout(ctx, e.cfg.ReleaseTimeout)
			defer cancel()
			r, sent := m.Do(bounded, e.scriptsOf(m).inspect, k[:lockKeys], nil)
			v := readView(r)
			// The time limit is this package's or the caller's. In both cases the master did not answer within it.
			if v.Err != nil && bounded.Err() != nil {
				v.Err = &transport.NoReply{After: e.clock.Now().Mono - sent.Mono}
			}
			v.Index, v.Addr, v.Err = m.Index, m.At(k[0]).Addr(), m.Explain(v.Err)
			views <- v
		}
		// The locker was closed in between. The masters that were asked answer into a channel that has room for all.
		if !e.tasks.spawn(ask) {
			return nil, false
		}
	}
	all = make([]View, len(e.masters))
	for range e.masters {
		v := <-views
		all[v.Index] = v
	}
	return all, true
}

// readView parses one master's reply of inspect.lua. It checks nothing against the other masters. Fields that a later
// version may add to a row are ignored.
func readView(r rueidis.RedisResult) (v View) {
	fields, err := r.ToArray()
	if err != nil {
		return View{Err: err}
	}
	if len(fields) != 5 {
		return View{Err: fmt.Errorf("malformed reply of %d fields", len(fields))}
	}
	mode, _ := fields[1].ToString()
	token, _ := fields[2].AsInt64()
	v.Mode, v.Token = readMode(mode), fencing.Token(token)
	holders, _ := fields[3].ToArray()
	for _, h := range holders {
		row := newRow(h)
		v.Holders = append(v.Holders, Holder{
			Hold: row.text(0), Owner: row.text(1), Mode: readMode(row.text(2)), Count: int(row.number(4)),
			Remaining: row.millis(5), Held: row.millis(6), Meta: row.text(8),
			Cohort: row.number(9) == 1,
		})
	}
	waiters, _ := fields[4].ToArray()
	for _, w := range waiters {
		row := newRow(w)
		v.Waiters = append(v.Waiters, Waiter{
			Hold: row.text(0), Owner: row.text(1), Mode: readMode(row.text(2)), Waited: row.millis(4), Meta: row.text(5),
		})
	}
	return v
}

func newRow(m rueidis.RedisMessage) row {
	r, _ := m.ToArray()
	return r
}
