package engine

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/masterset"
	"github.com/seed74116694/fencelock/internal/transport"
)

// reply is one master's answer about one hold.
type reply struct {
	status int64
	token  fencing.Token
	first  fencing.Token // the first token of the block that ends with token; 0 if the master does not report it
	left   time.Duration // of the hold if granted, else until something may expire there
	mode   fencing.Mode  // of the joined hold
	holder *Holder       // of the lock, if this hold does not have it
	micros int64         // the server's clock
	err    error         // no answer, or a refusal: the other fields are then unknown or wrong
}

// The statuses of the scripts that ask for a vote.
const (
	statusQueued    = 0 // of join and regain: the hold is not there
	statusGranted   = 1
	statusRefused   = 2 // of join: the owner only reads
	statusTombstone = 3 // released before the request arrived
	statusAbstains  = 4 // the master has no vote
	statusChanged   = 5 // the marker was read from another server than this one
	statusClock     = 6 // the token is too far ahead of the master's clock
	statusRival     = 7 // of an upgrade: another reader is upgrading already
)

// readReply validates everything that it reads, because a proxy or an unrelated script may answer anything. A malformed
// reply counts as no answer.
func readReply(r rueidis.RedisResult) reply {
	fields, err := r.ToArray()
	if short, ok := unreplicated(err); ok && !transport.DidNotRun(err) {
		p := readReply(short.Reply)
		if p.err == nil && p.status == statusGranted { // other replies wrote nothing that counts
			p.err = short
		}
		return p
	}
	if err != nil {
		return reply{err: err}
	}
	if len(fields) < 4 {
		return reply{err: fmt.Errorf("malformed reply of %d fields", len(fields))}
	}
	var n [4]int64
	for i := range n {
		if n[i], err = fields[i].AsInt64(); err != nil {
			return reply{err: fmt.Errorf("malformed reply: %w", err)}
		}
	}
	if !isToken(n[1]) {
		return reply{err: transport.ErrCounter}
	}
	p := reply{status: n[0], token: fencing.Token(n[1]), left: time.Duration(n[2]) * time.Millisecond, micros: n[3]}
	row := row(fields)
	switch len(fields) {
	case 5:
		p.first = fencing.Token(max(row.number(4), 0))
	case 6:
		p.mode = readMode(row.text(5))
	case 8:
		p.holder = readHolder(row.text(4), row.text(5), row.millis(6), row.millis(7))
	}
	return p
}

// isToken reports whether a number in a reply is a token, or 0 for none.
func isToken(n int64) bool { return n >= 0 && n <= int64(fencing.MaxToken) }

// answer converts the reply to an answer for the ballot. sent is the time just before the request left, lock is its
// first key. It is the only place that knows both the statuses of the scripts and the statuses of the ballot, so the
// ballot does not depend on the scripts, and an unknown status is a refusal and never a grant.
func (e *Engine) answer(m *transport.Master, lock string, join bool, p reply, sent clock.Instant) ballot.Answer {
	m.Sample(lock, sent, p.micros)
	if len(e.masters) > 1 && p.err == nil {
		e.tokens.observeRoundTrip(min(e.clock.Now().Mono-sent.Mono, time.Second/2))
	}
	switch {
	case p.err != nil:
		return e.noAnswer(m, p.err)
	case p.status == statusGranted:
		return ballot.Answer{Status: ballot.IsGranted, Token: p.token, Until: e.drift.Trusted(sent, p.left)}
	case p.status == statusAbstains, p.status == statusChanged:
		// An abstention is not a vote, and reports when to ask again. If it has no time, or a time that no client of
		// this set can have caused, the marker has to be read again.
		if p.left == 0 || p.left > masterset.Quarantine(e.cfg.LongestTTL) {
			e.masterSet.Recheck()
		}
		return ballot.Answer{Status: ballot.NoAnswer, Err: &Abstaining{p.left, e.masterSet.Defect(m.Index)}}
	case p.status == statusClock:
		// Case floor-no-bound of the model: without that refusal one master with a clock that is ahead pulls all tokens
		// to its clock.
		return ballot.Answer{Status: ballot.IsRefused, Err: ErrServerClock}
	case join && p.status == statusQueued:
		return ballot.Answer{Status: ballot.IsAbsent}
	case join && p.status == statusRefused:
		return ballot.Answer{Status: ballot.IsReading}
	case p.status == statusQueued:
		return ballot.Answer{Status: ballot.IsQueued}
	case p.status == statusRival:
		return ballot.Answer{Status: ballot.IsRival}
	default:
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

// Holder is one granted hold as a master reports it.
type Holder struct {
	Owner, Hold, Meta string
	Mode              fencing.Mode
	Count             int
	Cohort            bool // the goroutines of a process share it
	Remaining, Held   time.Duration
}

// readHolder reads the details of a hold that has the lock. Another client wrote them, perhaps of a later version, so
// details that cannot be read are left out: an error without a holder is better than none.
func readHolder(details, hold string, remaining, held time.Duration) *Holder {
	f := strings.SplitN(details, " ", 5)
	if len(f) != 5 {
		return nil
	}
	owner := f[2]
	if i := strings.IndexAny(owner, "^~"); i >= 0 { // see lock.lua
		owner = owner[:i]
	}
	cohort := strings.HasPrefix(owner, "+")
	if owner == "-" || cohort {
		owner = hold
	}
	return &Holder{
		Owner: owner, Hold: hold, Meta: f[4], Mode: readMode(f[0]), Count: 1, Cohort: cohort,
		Remaining: remaining, Held: held,
	}
}

// readInts reads a reply of integers into the caller's slice. A reply of another form is an error, and so is a failed
// request.
func readInts(r rueidis.RedisResult, into []int64) error {
	fields, err := r.ToArray()
	if err != nil {
		return err
	}
	if len(fields) != len(into) {
		return fmt.Errorf("malformed reply of %d fields", len(fields))
	}
	for i := range into {
		if into[i], err = fields[i].AsInt64(); err != nil {
			return fmt.Errorf("malformed reply: %w", err)
		}
	}
	return nil
}

// row reads the fields of one holder or waiter; a missing field is empty. So a client can read rows to which a later
// version of the scripts adds fields, and rows from which an earlier version left some out.
type row []rueidis.RedisMessage

func (r row) text(i int) string {
	if i >= len(r) {
		return ""
	}
	s, _ := r[i].ToString()
	return s
}

func (r row) number(i int) int64 {
	if i >= len(r) {
		return 0
	}
	n, _ := r[i].AsInt64()
	return n
}

// millis reads an elapsed or a remaining time. It is never negative, although a server's clock that was set back since
// would yield a negative one.
func (r row) millis(i int) time.Duration {
	return time.Duration(max(r.number(i), 0)) * time.Millisecond
}

// modeArg formats a mode as the scripts read it.
func modeArg(m fencing.Mode) string {
	if m == fencing.Write {
		return "w"
	}
	return "r"
}

func readMode(s string) fencing.Mode {
	if s == "w" {
		return fencing.Write
	}
	return fencing.Read
}

// tokenArg and millis format arguments of scripts. A token is written in full: Lua's own conversion loses digits from
// 1e14 on.
func tokenArg(t fencing.Token) string { return strconv.FormatUint(uint64(t), 10) }

func millis(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
