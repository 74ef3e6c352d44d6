package engine

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/transport"
)

// layout is the version of what the scripts keep in a lock's keys. Clients of different layouts refuse each other.
const layout = "2"

// markerRequest is what a master is asked of its marker; see marker.lua. To look changes nothing but a run id that has
// changed; to give a marker does nothing where there is one.
type markerRequest struct {
	purpose, set, seat, seats string
	terms                     terms  // of the seats, that it is told of
	instead                   string // the set whose marker is replaced
	unmarked                  int64  // the server's time at which it had no marker, in microseconds
}

// unread is a number of connections that no client opens: the marker was read over a connection that is being replaced.
const unread = ^uint64(0)

// all asks the same of every master. Each has a copy: survey.take strikes out those that failed.
func all(n int, r markerRequest) []*markerRequest {
	requests := make([]*markerRequest, n)
	for i := range requests {
		requests[i] = &r
	}
	return requests
}

// markerReply is what one master showed.
type markerReply struct {
	layout, rules, set, seat, seats, run, id, role string
	known                                          string // the run id that it has in the marker
	terms                                          terms
	rival                                          string // another set than that of the others, founded at the same time
	cluster                                        bool
	micros                                         int64         // the server's time
	left                                           time.Duration // of its quarantine
	dials                                          uint64        // of the client, before the marker was read
	err                                            error

	unfit    error // what keeps it from having a vote
	succeeds bool  // it is the server of its seat, and is to begin another term
}

// isMember reports whether the master is one of the set.
func (c markerReply) isMember() bool { return c.err == nil && c.unfit == nil && c.set != "" }

// inOrder reports whether the master may vote, unless it abstains.
func (c markerReply) inOrder() bool { return c.isMember() && !c.succeeds && c.id != "" }

// arrival is what one of several masters showed.
type arrival struct {
	master int
	reply  markerReply
}

// visit asks the masters at once, each from a goroutine of its own, so that one that hangs holds up no other; nil
// leaves one out. It waits for all of them, but after the node timeout only for a quorum, and for that only within the
// grace.
func (s *survey) visit(ctx context.Context, requests []*markerRequest) []markerReply {
	replies := make([]markerReply, len(requests))
	arrivals := make(chan arrival, len(requests))
	late, grace := s.of.visitTimes()
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	// A master that does not answer shows so; one that is left out, too, until revisit puts back what it showed before.
	open := 0
	for i, r := range requests {
		replies[i].err = &transport.NoReply{After: grace}
		if r == nil {
			continue
		}
		if !s.e.tasks.spawn(func() { arrivals <- arrival{i, s.ask(ctx, i, r)} }) {
			return replies
		}
		open++
	}
	timeout := time.NewTimer(late)
	defer timeout.Stop()
	// Every answer counts until the node timeout. After that a quorum decides, so that a dead master costs a locker no
	// more than one node timeout at its start.
	for isLate, got := false, 0; open > 0 && (!isLate || got < s.e.quorum()); {
		select {
		case a := <-arrivals:
			replies[a.master] = a.reply
			open--
			if a.reply.err == nil {
				got++
			}
		case <-timeout.C:
			isLate = true
		case <-ctx.Done():
			return replies
		}
	}
	return replies
}

// ask returns what one master shows. Of several, each is listened to before, and prepared for replicas: a connection
// that is opened later would make the master a stranger again.
func (s *survey) ask(ctx context.Context, i int, r *markerRequest) markerReply {
	e, m := s.e, s.e.masters[i]
	if len(e.masters) > 1 {
		m.Listen(e.keys.marker)
		listening := time.NewTimer(e.cfg.NodeTimeout)
		select {
		case <-m.Listened():
		case <-listening.C: // the client's pool may be used up by others
		case <-ctx.Done():
		}
		listening.Stop()
		m.Prepare(ctx)
	}
	quarantine := millis(max(e.cfg.LongestTTL, quarantineMin))
	args := []string{
		r.purpose, layout, s.of.rules(), r.set, r.seat, r.seats, quarantine, r.terms.text(), r.instead,
		strconv.FormatInt(r.unmarked, 10),
	}
	// The marker counts for the connection that it was read over. If another was opened meanwhile, it is not known over
	// which one the answer came, and so from which server.
	dials := m.Dials()
	result, sent := m.Do(ctx, e.markerScript, []string{e.keys.marker}, args)
	c := readMarkerReply(result)
	// The refusal of a cluster's node is an answer too: it says what the master is.
	if transport.FromCluster(c.err) && m.Standalone() {
		c = markerReply{cluster: true}
	}
	if c.dials = dials; m.Dials() != dials && c.err == nil {
		c.dials = unread
	}
	// The first proposal of tokens is made from it.
	if c.err == nil && c.dials == dials && len(e.masters) > 1 {
		m.Sample(e.keys.marker, sent, c.micros)
	}
	return c
}

// readMarkerReply reads the reply of marker.lua. Fields that are missing on a server of its kind are empty: a single
// master has a layout and nothing else.
func readMarkerReply(r rueidis.RedisResult) markerReply {
	fields, err := r.ToArray()
	if err != nil {
		return markerReply{err: err}
	}
	if len(fields) != 13 {
		return markerReply{err: fmt.Errorf("malformed reply of %d fields", len(fields))}
	}
	text := row(fields)
	now := time.Duration(text.number(0)) * time.Microsecond
	return markerReply{
		micros: now.Microseconds(), left: max(text.millis(6)-now, 0),
		layout: text.text(1), rules: text.text(2), set: text.text(3), seat: text.text(4), seats: text.text(5),
		run: text.text(7), id: text.text(8), role: text.text(9), cluster: text.text(10) == "1",
		known: text.text(11), terms: readTerms(text.text(12)),
	}
}
