package wire

import (
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/fencing"
)

// Refresh keeps the waiters of one process for a lock alive, and asks for their state: refresh.lua.
type Refresh struct {
	Route Route    // of the process now; "" for the same as before
	Holds []string // at most 1000; none only continues the work that an earlier call has left
}

func (q Refresh) Args(to []string) []string {
	route := q.Route
	if route == "" {
		route = "-"
	}
	return append(append(to, string(route)), q.Holds...)
}

// More is the work that a script has left to the client.
type More uint8

const (
	NoMore     More = iota
	MoreAdmits      // more waiters may enter: a Refresh goes on
	MoreReads       // no waiter was let in: the client has to read the marker first
)

type RefreshReply struct {
	Micros  int64         // the server's time
	Left    time.Duration // until something may expire; 0 if that is unknown
	More    More
	Waiters []RefreshedWaiter
}

// RefreshedWaiter is the state of one waiter: Queued, Granted or Absent.
type RefreshedWaiter struct {
	Status Status
	Token  fencing.Token // of a grant
	Left   time.Duration // of a grant
}

func ReadRefresh(result rueidis.RedisResult, n int) (RefreshReply, error) {
	f := read(result)
	reply := RefreshReply{Micros: f.number(aTime), Left: f.millis(aDuration), More: More(f.number(moreWork))}
	if n > 0 {
		reply.Waiters = make([]RefreshedWaiter, n)
	}
	for i := range reply.Waiters {
		w := &reply.Waiters[i]
		w.Status = [...]Status{Queued, Granted, Absent}[f.number(status(2))]
		w.Token, w.Left = fencing.Token(f.number(aToken)), f.millis(aDuration)
		if w.Status == Granted && (w.Token == 0 || w.Left == 0) {
			f.malformed("time of a grant")
		}
	}
	return end(&f, reply)
}
