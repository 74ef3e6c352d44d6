package hold

import (
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/ballot"
	"github.com/seed74116694/fencelock/internal/clock"
)

// Kind says what has happened.
type Kind uint8

// What a master says of the hold, whether it is asked for or held.
const (
	Answered  Kind = iota // the request has an answer: After says when to ask again, First where a block begins
	Told                  // a message: it is granted, trusted until Answer.Until
	Confirmed             // the answer to SendConfirm
	Raised                // the answer to SendRaise
	Yielded               // the answer to SendYield
	Broken                // an operator has broken the hold: see By
)

// What happens while the hold is asked for.
const (
	Begin     Kind = iota + 16 // ask all masters; also after Restart, under the new id
	Repeated                   // the request is sent again, and the first one may have run
	Heard                      // a message: it is granted, but nothing shows until when
	Wanted                     // a message: an older hold waits behind this one
	Refreshed                  // a refresh: the state of the waiter
	Remind                     // the timer of the waiters: ask what is to be asked; Quiet if another waiter asks for all
	Late                       // the node timeout is over; Err is the failure of the masters that have not answered
	GiveUp                     // ctx has ended, or the engine is closed; Unsent if the only request has not left
)

// What happens while it is held.
const (
	Tick     Kind = iota + 32 // the timer, or a look at the clock
	Renewed                   // the answer to SendRenew, or that there is none: Err names the server
	Regained                  // the answer to SendRegain
	Renew                     // renew now
	Poll                      // renew now, and once more after a round that is under way, which may have come too early
	SetTTL                    // renew for TTL from now on; Sent.Mono is when a renewal last had no answer, or 0
	Claim                     // a caller has the lease now
	Disclaim                  // no caller has the lease; also while it is asked for
	Exchange                  // the lease stands on this hold now, as it stood on From
	Replace                   // the lease stands on another hold now
	Release                   // it is over; Way says how to give it back
	Lose                      // it is lost, as Loss says
)

// Event is what has happened. Each kind uses some of the fields.
type Event struct {
	Kind          Kind
	Way           Way
	Unsent, Quiet bool
	Master        int
	Answer        ballot.Answer
	Token, First  fencing.Token
	Sent          clock.Instant // when the request left that is answered
	TTL           time.Duration // of the request that is answered, or a new one
	After         time.Duration
	Err           error
	By            error // of Broken and Answered: the operator that has broken the hold
	Keeps         bool  // with By: the holder may still work
	From          *Hold
	Loss          *Loss
}

// EffectKind says what the caller of Step has to do.
type EffectKind uint8

// Requests to the master. Each is answered by the event of the same name.
const (
	SendAcquire EffectKind = iota // Urgent, but for a repeated one; beyond Token, which was given back there
	SendConfirm                   // renew the grant with this Token, for Keep, before it counts; useless after Until
	SendRaise                     // to Token
	SendYield                     // the grant with this Token; Leave: to any hold
	SendRenew                     // for Keep; useless after Until. TTL is for the event
	SendRegain                    // for Keep; TTL and Until, as Sent, are for the event. Known: its own grant is trusted

	// SendRelease gives the hold back. Keep is for how long from now the master may keep it by itself, TTL that of the
	// tombstone that stops a late request, 0 for none; Strays: also where the hold is found. At is until when its
	// minimum lasts, 0 for none. Unsent: the request for the hold may not have left, and then there is nothing to
	// release. Heir: the acquisition goes on with another hold.
	// Outrun: what this master has granted beyond its clock, where the hold has a smaller Token; 0 for none.
	SendRelease
)

// What else follows.
const (
	Wait     EffectKind = iota + 16 // wait for this master: ask after At, or after N failures. Served, or Err: its answer
	Wake                            // have the waiters ask this master now
	AskAgain                        // this master does not know the waiter
	Restart                         // nothing came of the hold: give it a new id, and then Begin. Err: the Failures
	Start                           // asking is over: the hold is held. Known: it was handed over
	Fail                            // asking is over, without a hold: Verdict says why; Err is the operator that broke it
	Kept                            // a quorum has renewed the hold. Err: the Failures of a minority, or nil
	NotKept                         // a round is over without a quorum: N masters have renewed it. Err: the Failures
	AtRisk                          // only At is left, and a renewal is overdue
	Missing                         // this master does not take the hold back, which stands on N masters
	End                             // it is over: Loss says why, nil if its holder has ended it. Way: Later if it is Lost
	SetTimer                        // Tick at At
)

// Effect is what follows from an event, in order. All may be carried out under the mutex of the lease.
type Effect struct {
	Kind                          EffectKind
	Verdict                       ballot.Verdict
	Way                           Way
	Urgent, Known, Unsent, Strays bool
	Heir, Leave, Served           bool
	Master, N                     int
	Token, Outrun                 fencing.Token
	TTL, Keep, At                 time.Duration
	Until                         clock.Instant
	Err                           error
	Loss                          *Loss
}

// Way says how a hold is given back.
type Way uint8

const (
	ByCaller Way = iota // the caller of Step sends the releases itself
	AtOnce              // in the background; other requests of the process wait for the answers
	Together            // in the background, with the releases of other holds: many may end at once
	ByHeir              // not at all: another process goes on with the hold, and releases it
	Later               // at the next Release, or at the deadline
)

// Reason says why a hold ended without its holder's wish, in the words of logs and of package rwlock.
type Reason string

const (
	Expired     Reason = "expired"     // its time was over without a renewal
	Taken       Reason = "gone"        // the masters do not have the hold any more
	Unreachable Reason = "not renewed" // no renewal was confirmed by a quorum in time
	Paused      Reason = "paused"      // this process or its machine stood still past the deadline
	MaxHold     Reason = "max hold"    // the agreed limit was reached
	ByOperator  Reason = "broken"      // by an operator
)

// Loss is the end of a hold without its holder's wish.
type Loss struct {
	Reason  Reason
	Token   fencing.Token // of the work, if the event named it
	Limit   time.Duration // the TTL, the hand-off TTL, or MaxHold; 0 for Taken and ByOperator
	HandOff bool          // the hold was a hand-off that no renewal had confirmed
	Err     error         // the operator that broke it, or the Failures of Unreachable
}
