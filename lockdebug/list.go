package lockdebug

import (
	"context"
	"net/http"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// ListHandler returns a page like that of Handler about the locks of every process that are in use in the Redis of this
// Locker, under its prefix: their holders and waiters, as Locker.List shows them. title names the Redis. A server that
// does not answer is named on the page, and in the field errors of the JSON. If held locks may be missing, the status
// is 502. A lock that may be held has a row with the mode "unknown" and the error.
//
// Each request makes the servers look at all their keys, one request at a time; the page asks again after ten times the
// time that an answer took. The user of the client needs the right to SCAN.
func ListHandler(l *rwlock.Locker, title string) http.Handler { return listHandler(l, title, false) }

// listHandler makes the page, with links to break holds if it is for operators.
func listHandler(l *rwlock.Locker, title string, operator bool) http.Handler {
	turn := make(chan struct{}, 1)
	return handler(l, func(ctx context.Context, r request) (snapshot, error) {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			return snapshot{}, context.Cause(ctx)
		}
		defer func() { <-turn }()
		s := redisSnapshot(ctx, l, title, r)
		s.Breaks = operator
		return s, nil
	})
}

// maxErrors bounds how many errors of servers an answer shows.
const maxErrors = 20

// redisSnapshot is about the locks of every process.
func redisSnapshot(ctx context.Context, l *rwlock.Locker, title string, r request) snapshot {
	now, found := time.Now(), gather(r)
	var errs []string
	unknown := false
	for state, err := range l.List(ctx, r.Prefix) {
		free := len(state.Holders) == 0
		_, spare := err.(*rwlock.NodeError) // a quorum of the others lists its locks too
		unknown = unknown || err != nil && free && !spare
		rows := rowsOf(state, now)
		switch {
		case err != nil && free && state.Name != "":
			may := rwlock.LeaseState{Name: state.Name, Since: now, Err: err}
			rows = append(rows, shown{LeaseState: may, unknown: true})
		case err != nil && len(errs) < maxErrors:
			errs = append(errs, err.Error())
		}
		of := newGroup(state.Name)
		for _, row := range rows {
			of.count(row)
		}
		for _, row := range rows {
			row.of = of
			found.add(row)
		}
	}
	s := found.snapshot(now)
	s.Redis, s.Errors, s.Unknown = title, errs, unknown
	return s
}

// rowsOf returns the holders and the waiters of a lock as if they were of this process.
func rowsOf(s rwlock.State, now time.Time) (rows []shown) {
	for _, h := range s.Holders {
		lease := rwlock.LeaseState{
			Name: s.Name, Mode: h.Mode, Owner: h.Owner, Hold: h.Hold, Meta: h.Meta, Since: now.Add(-h.Held),
			Deadline: now.Add(h.Remaining), Count: h.Count, Shared: h.Shared, Token: h.Token,
		}
		rows = append(rows, shown{
			LeaseState: lease, broken: h.Broken, brokenBy: h.BrokenBy, brokenWhy: h.BrokenWhy, ended: h.Ended,
			detached: h.Detached,
		})
	}
	for _, w := range s.Waiters {
		waiter := rwlock.LeaseState{
			Name: s.Name, Mode: w.Mode, Owner: w.Owner, Hold: w.Hold, Meta: w.Meta, Since: now.Add(-w.Waited), Waiting: true,
		}
		if len(s.Holders) > 0 {
			waiter.Behind = &s.Holders[0]
		}
		rows = append(rows, shown{LeaseState: waiter})
	}
	return rows
}
