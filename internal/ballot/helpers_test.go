package ballot_test

import (
	"errors"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
)

// The masters of three, by name.
const (
	A = iota
	B
	C
)

// trust is how long the grants of these tests are trusted, counted from now.
const trust = 10 * time.Second

var (
	now     = clock.Instant{Mono: time.Hour, Wall: 1_700_000_000 * time.Second}
	later   = now.Add(trust / 2)
	tooLate = now.Add(trust)
)

var (
	errSilent = errors.New("no reply")
	errDown   = errors.New("not connected")
	errDenied = errors.New("NOPERM")
)

// The answers of a master.
var (
	queued  = ballot.Answer{Status: ballot.IsQueued}
	refused = ballot.Answer{Status: ballot.IsRefused}
	absent  = ballot.Answer{Status: ballot.IsAbsent}
	reading = ballot.Answer{Status: ballot.IsReading}

	silent   = ballot.Answer{Status: ballot.NoAnswer, Err: errSilent, Unknown: true}   // it may have run
	down     = ballot.Answer{Status: ballot.NoAnswer, Err: errDown}                    // it has not
	denied   = ballot.Answer{Status: ballot.NoAnswer, Err: errDenied, Permanent: true} // nor will it ever
	conflict = ballot.Answer{Status: ballot.NoAnswer, Err: errDenied, Permanent: true, Conflict: true}
)

func granted(token fencing.Token) ballot.Answer { return grantedUntil(token, now.Add(trust)) }

func grantedUntil(token fencing.Token, until clock.Instant) ballot.Answer {
	return ballot.Answer{Status: ballot.IsGranted, Token: token, Until: until}
}

// asked returns a ballot whose masters have all been asked, and have given these answers, if any.
func asked(entry ballot.Entry, masters int, answers ...ballot.Answer) *ballot.Ballot {
	b := new(ballot.Ballot)
	b.Start(entry, masters)
	for i := range masters {
		b.Vote(i).Ask()
	}
	for i, a := range answers {
		b.Vote(i).Answered(a)
	}
	return b
}

// holding returns a ballot of three masters that holds token 2 on A and B, and has the given answer of C.
func holding(c ...ballot.Answer) *ballot.Ballot {
	b := asked(ballot.Wait, 3, append([]ballot.Answer{granted(2), granted(2)}, c...)...)
	b.Decide(now, anywhere)
	return b
}

// anywhere is the reach of masters whose clocks are ahead of all tokens.
func anywhere(int) fencing.Token { return fencing.MaxToken }

func verdict(b *ballot.Ballot, at clock.Instant) ballot.Verdict {
	v, _, _ := b.Decide(at, anywhere)
	return v
}

// reported returns the token that the ballot is held with, 0 if it is not.
func reported(b *ballot.Ballot, at clock.Instant) fencing.Token {
	if v, token, _ := b.Decide(at, anywhere); v == ballot.Held {
		return token
	}
	return 0
}

func raise(master int, token fencing.Token) ballot.Action {
	return ballot.Action{Master: master, Op: ballot.Raise, Token: token}
}

func yield(master int, token fencing.Token) ballot.Action {
	return ballot.Action{Master: master, Op: ballot.Yield, Token: token}
}
