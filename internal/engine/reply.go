package engine

import (
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/masterset"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// holdReader reads the reply of one of the scripts about one hold.
type holdReader func(rueidis.RedisResult) (wire.HoldReply, error)

// readHold reads a reply. A grant that too few replicas have is the error of the replicas, with the reply.
func readHold(r rueidis.RedisResult, read holdReader) (wire.HoldReply, error) {
	reply, err := read(r)
	short, ok := unreplicated(err)
	if !ok || transport.DidNotRun(err) {
		return reply, err
	}
	reply, err = read(short.Reply)
	if err == nil && reply.Status == wire.Granted { // other replies wrote nothing that counts
		err = short
	}
	return reply, err
}

// answer converts the reply to an answer for the ballot. sent is the time just before the request left, lock is its
// first key. It is the only place that knows both the statuses of the scripts and the statuses of the ballot, so the
// ballot does not depend on the scripts.
func (e *Engine) answer(
	m *transport.Master, lock string, reply wire.HoldReply, err error, sent clock.Instant,
) ballot.Answer {
	m.Sample(lock, sent, reply.Micros)
	if err != nil {
		return e.noAnswer(m, err)
	}
	if len(e.masters) > 1 {
		e.tokens.observeRoundTrip(min(e.clock.Now().Mono-sent.Mono, time.Second/2))
	}
	switch reply.Status {
	case wire.Granted:
		return ballot.Answer{Status: ballot.IsGranted, Token: reply.Token, Until: e.drift.Trusted(sent, reply.Left)}
	case wire.Queued:
		return ballot.Answer{Status: ballot.IsQueued}
	case wire.Absent:
		return ballot.Answer{Status: ballot.IsAbsent}
	case wire.OnlyReads:
		return ballot.Answer{Status: ballot.IsReading}
	case wire.Rival:
		return ballot.Answer{Status: ballot.IsRival}
	case wire.Abstains, wire.Changed:
		// An abstention is not a vote, and reports when to ask again. If it has no time, or a time that no client of
		// this set can have caused, the marker has to be read again.
		if reply.Left == 0 || reply.Left > masterset.Quarantine(e.cfg.LongestTTL) {
			e.masterSet.Recheck()
		}
		return ballot.Answer{Status: ballot.NoAnswer, Err: &Abstaining{reply.Left, e.masterSet.Defect(m.Index)}}
	case wire.ClockAhead:
		// Case floor-no-bound of the model: without that refusal one master with a clock that is ahead pulls all tokens
		// to its clock.
		return ballot.Answer{Status: ballot.IsRefused, Err: ErrServerClock}
	default: // refused, or released before the request arrived
		return ballot.Answer{Status: ballot.IsRefused}
	}
}

// noAnswer returns the ballot's answer for a call that failed. It distinguishes whether the request may have run (then
// a release has to follow it), whether asking again can help, and the cause of the failure. A grant that too few
// replicas have stands on the master, so it has to be released, and asking again would find the same grant.
func (e *Engine) noAnswer(m *transport.Master, err error) ballot.Answer {
	if transport.Unread(err) {
		e.masterSet.Recheck()
	}
	_, short := unreplicated(err)
	return ballot.Answer{
		Status: ballot.NoAnswer, Err: m.Explain(err), Unknown: !transport.DidNotRun(err), Short: short,
		Permanent: short || m.Permanent(err), Conflict: transport.Conflict(err),
	}
}
