package schedule_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/schedule"
)

// FuzzRefreshes lets anything happen between waiters and a master, with a timer that is never late:
//
//   - nothing is asked while a refresh is under way, in a backoff, or after the end;
//   - each waiter is asked for within its interval, or at once after a refresh or a backoff that lasts longer;
//   - a wake-up is followed by a refresh, at once or after one that is under way;
//   - while the server refuses requests of a kind that is sent, one waiter asks soon; while it refuses waiters' own,
//     all ask once in an interval, if another server may answer, or once it has served one of them;
//   - a refusal lasts until a request of its kind is served, or none is sent;
//   - without messages that interval is no longer than the time since the last news;
//   - without a cause nobody asks before the interval ends, which grows with the time since the last news.
func FuzzRefreshes(f *testing.F) {
	source := rand.NewChaCha8([32]byte{1})
	for range 20 {
		seed := make([]byte, 200)
		_, _ = source.Read(seed)
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, events []byte) { play(t, events) })
}

// TestRefreshesAtRandom plays more runs than a fuzz target's seeds do.
func TestRefreshesAtRandom(t *testing.T) {
	source := rand.NewChaCha8([32]byte{2})
	events := make([]byte, 150)
	for range 5_000 {
		_, _ = source.Read(events)
		play(t, events)
	}
}

// world is the waiters, the master and what has happened between them.
type world struct {
	t        testing.TB
	r        schedule.Refreshes
	now      time.Duration
	backoff  time.Duration
	silent   bool
	planned  bool          // silent when the next refresh was last planned
	deferred time.Duration // by the last backoff in which it was due
	every    time.Duration // the shortest of the waiters
	inFlight bool
	ended    bool
	refused  [2]bool          // by the kind
	since    [2]time.Duration // of the first refusal
	soon     bool             // it refused some when the next refresh was planned
	news     time.Duration
	asked    time.Duration // last
	by       time.Duration // the end of the first interval of a waiter
	woken    bool          // since then
	expiry   time.Duration // after which there may be another answer
	allAt    time.Duration // while the server refuses waiters' own requests, when all ask again
}

func play(t testing.TB, events []byte) {
	const start = time.Hour
	w := &world{t: t, now: start, news: start, asked: start, every: clock.Never, by: clock.Never, expiry: clock.Never}
	w.r = schedule.Begin(start)
	w.add(time.Second, schedule.Outcome{})
	for _, e := range events {
		w.step(e%16, time.Duration(e/16))
		w.mustPlan()
	}
}

// step is one event; n is less than 16.
func (w *world) step(event byte, n time.Duration) {
	a := schedule.Outcome{
		Served: n%4 == 1 || n%4 == 2, Refused: n%4 == 0, Granted: n%4 == 1, Again: n%8 == 2,
		Wake: n % 3 * 30 * time.Millisecond,
	}
	switch event {
	case 0:
		w.add((n+1)*100*time.Millisecond, a)
	case 1:
		w.r.Wake(w.now)
		w.woken = true
	case 2:
		w.r.WakeRefused(w.now)
		w.woken, w.allAt = true, 0
	case 3:
		w.silent = !w.silent
	case 4:
		w.backoff = w.now + n*50*time.Millisecond
	case 5:
		if n == 0 {
			w.r.End()
			w.ended = true
		}
	case 6, 7, 8, 9:
		if w.inFlight {
			w.inFlight = false
			if a.Granted {
				w.news = w.now
			}
			w.r.Answered(w.now, w.silent, a)
			w.note(schedule.Refresh, a)
		}
	default:
		w.pass(n*n*5*time.Millisecond, n%4 != 0, n%2 == 0)
	}
}

func (w *world) add(every time.Duration, a schedule.Outcome) {
	w.every, w.by = min(w.every, every), min(w.by, w.now+every)
	if !a.Refused {
		w.news = w.now
	}
	w.r.Add(w.now, every, w.silent, a)
	w.note(schedule.Own, a)
}

func (w *world) note(k schedule.Kind, a schedule.Outcome) {
	w.woken = w.woken || a.Again || k == schedule.Own && w.refused[k] && a.Served
	if a.Wake > 0 {
		w.expiry = min(w.expiry, w.now+a.Wake+time.Millisecond)
	}
	if a.Refused && !w.refused[k] {
		w.since[k] = w.now
	}
	if a.Refused || a.Served {
		w.refused[k] = a.Refused
	}
	w.planned, w.soon = w.silent, w.soon || w.refuses()
}

func (w *world) refuses() bool { return w.refused[schedule.Own] || w.refused[schedule.Refresh] }

// pass lets time pass. The timer fires in it; waiters ask with requests of their own, and if any are queued a refresh
// leaves.
func (w *world) pass(d time.Duration, own, queued bool) {
	until := w.now + d
	for at := w.r.At(); at <= until; at = w.r.At() {
		w.now = max(w.now, at)
		w.ask(own, queued)
		w.mustPlan()
	}
	w.now = until
}

func (w *world) ask(own, queued bool) {
	w.must(!w.inFlight && !w.ended, "the timer was set")
	whom := w.r.Ask(w.now, w.backoff, w.silent)
	if w.backoff > w.now {
		w.must(whom == schedule.Nobody, "asks in a backoff")
		w.deferred = w.backoff
		return
	}
	one := w.refused[schedule.Own] && w.now < w.allAt
	w.must(whom != schedule.Nobody && one == (whom == schedule.One), "asks for the wrong waiters")
	if !one {
		w.allAt = w.now + w.every
	}
	if !w.woken {
		pause := max(10*time.Millisecond, min(w.every, w.asked-w.news))
		if w.soon {
			pause = min(pause, 40*time.Millisecond)
		}
		w.must(w.now >= min(w.asked+pause, w.expiry), "asks too often")
	}
	w.asked, w.by, w.woken, w.expiry, w.planned = w.now, w.now+w.every, false, clock.Never, w.silent
	w.soon = w.refuses()
	w.r.Asks(own, queued)
	w.inFlight = queued
	for k, sent := range []bool{own, queued} {
		w.refused[k] = w.refused[k] && sent
	}
}

// mustPlan requires that the next refresh is planned in time.
func (w *world) mustPlan() {
	at := w.r.At()
	if w.inFlight || w.ended {
		w.must(at == clock.Never && w.r.Ask(w.now, 0, false) == schedule.Nobody, "asks twice, or after the end")
		return
	}
	by := min(w.by, w.expiry)
	if w.refuses() {
		by = min(by, w.now+40*time.Millisecond)
	}
	if w.planned {
		by = min(by, w.now+max(10*time.Millisecond, w.now-w.news))
	}
	if w.woken {
		by = w.now
	}
	w.must(at <= max(by, w.now, w.deferred), "asks too late")
	for k, refused := range w.refused {
		lasts := time.Duration(0)
		if refused {
			lasts = w.now - w.since[k]
		}
		w.must(w.r.RefusedFor(w.now, schedule.Kind(k)) == lasts, "has another refusal")
	}
	w.must(w.r.Refused() == w.refuses(), "has another refusal")
}

func (w *world) must(is bool, what string) {
	if !is {
		w.t.Fatalf("%s at %v: %+v", what, w.now, w.r)
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
