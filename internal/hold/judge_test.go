package hold_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/hold"
)

// judge looks for what must not follow from an event.
func (w *world) judge(e hold.Event, before hold.Phase) {
	rounds, timers, gone := 0, 0, false
	for _, f := range w.effects {
		switch f.Kind {
		case hold.SendConfirm, hold.SendRaise, hold.SendYield, hold.SendRenew, hold.SendRegain:
			if w.busy[f.Master] {
				w.fail(e, "master %d has two requests about its grant", f.Master)
			}
			w.busy[f.Master] = true
		case hold.Kept, hold.NotKept:
			rounds++
		case hold.SetTimer:
			if timers++; f.At > max(w.life.Until().Mono, w.deadline) {
				w.fail(e, "the timer comes after the deadline")
			}
		case hold.Restart, hold.Fail:
			gone = true
		case hold.SendRelease:
			if w.life.Phase() == hold.Lost {
				w.fail(e, "master %d is to let go of a hold that is kept for its holder", f.Master)
			}
		default:
		}
	}
	switch held := w.life.Phase() == hold.Held; {
	case before >= hold.Ended && len(w.effects) > 0:
		w.fail(e, "something follows after the end")
	case rounds > 1:
		w.fail(e, "two rounds are over")
	case (held || w.life.Phase() == hold.Lost) && timers != 1:
		w.fail(e, "%d timers", timers)
	case !held && w.life.Until().Mono != 0:
		w.fail(e, "a hold that is not held is trusted")
	case held:
		w.judgeTrust(e)
	}
	gone = gone || before < hold.Ended && w.life.Phase() == hold.Ended
	if gone && (e.Kind != hold.Release || e.Way != hold.ByHeir || before == hold.Lost) {
		w.judgeReleases(e)
	}
}

// judgeTrust looks for trust that no quorum has confirmed.
func (w *world) judgeTrust(e hold.Event) {
	if w.token != 0 && w.token != w.life.Token() {
		w.fail(e, "the token has changed")
	}
	w.token = w.life.Token()
	var array [5]time.Duration
	latest := array[:len(w.servers)]
	for _, c := range w.known {
		if c.token == w.token {
			latest[c.master] = max(latest[c.master], c.until)
		}
	}
	slices.Sort(latest)
	if most := latest[(len(latest)-1)/2]; w.life.Until().Mono > most {
		w.fail(e, "trusted until %v, confirmed until %v", w.life.Until().Mono, most)
	}
	w.judgeExpiry(e)
}

// judgeExpiry looks for trust in masters that may let go of the hold before.
func (w *world) judgeExpiry(e hold.Event) {
	stand := 0
	for i := range w.servers {
		s := &w.servers[i]
		stands := s.state == ballot.IsGranted && s.id == w.id && s.token == w.token && s.until > w.life.Until().Mono
		if stands || s.forgot {
			stand++
		}
	}
	if 2*stand <= len(w.servers) {
		w.fail(e, "trusted until %v, kept for so long by %d masters", w.life.Until().Mono, stand)
	}
}

// judgeReleases looks for what a master has, or may have once a request has run, and what is not released.
func (w *world) judgeReleases(e hold.Event) {
	for i := range w.servers {
		s := &w.servers[i]
		has := s.id == w.id && (s.state == ballot.IsQueued || s.state == ballot.IsGranted && s.until > w.now.Mono)
		late := slices.ContainsFunc(w.requests, func(r request) bool {
			return r.master == i && r.id == w.id && !r.ran && (r.op == opAcquire || r.op == opRegain)
		})
		released := slices.IndexFunc(w.effects, func(f hold.Effect) bool {
			return f.Kind == hold.SendRelease && f.Master == i
		})
		switch {
		case released < 0 && has:
			w.fail(e, "master %d has the hold, and no release is sent", i)
		case released < 0 && late:
			w.fail(e, "master %d may get the hold, and no release is sent", i)
		case late && w.effects[released].TTL == 0:
			w.fail(e, "master %d may get the hold after the release, which leaves no tombstone", i)
		}
	}
}

func (w *world) fail(e hold.Event, format string, arguments ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf("step %d at %v, %+v: ", w.steps, w.now.Mono, e) + fmt.Sprintf(format, arguments...)
	}
}
