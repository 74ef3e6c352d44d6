package engine

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/transport"
)

// layout is the version of the data that the scripts keep in a lock's keys. Clients of different layouts refuse each
// other.
const layout = "2"

// markerRequest is a request for a master's marker; see marker.lua. A look changes nothing except a run id that has
// changed, and a request to give a marker does nothing if the master has one.
type markerRequest struct {
	purpose, set, seat, seats string
	terms                     terms  // of the seats, for the master to record
	instead                   string // id of the set whose marker is replaced
	unmarked                  int64  // the server's time at which it had no marker, in microseconds
}

// unread is a number of dialled connections that no client reaches. It means that the marker was read over a connection
// that is being replaced.
const unread = ^uint64(0)

// all returns the same request for each of n masters. Each master has its own copy, because survey.complete clears the
// entries of masters that failed.
func all(n int, r markerRequest) []*markerRequest {
	requests := make([]*markerRequest, n)
	for i := range requests {
		requests[i] = &r
	}
	return requests
}

// markerReply is the answer of one master.
type markerReply struct {
	layout, rules, set, seat, seats, run, id, role string
	known                                          string // the run id in the marker
	terms                                          terms
	rival                                          string // a set of the same masters that lost to the common set
	cluster                                        bool
	micros                                         int64         // the server's time
	left                                           time.Duration // until the end of its quarantine
	dials                                          uint64        // of the client's connections, before the marker was read
	err                                            error

	unfit    error // the reason that it has no vote
	succeeds bool  // it is the server of its seat, and must begin the next term
}

// isMember reports whether the master belongs to the set.
func (c markerReply) isMember() bool { return c.err == nil && c.unfit == nil && c.set != "" }

// inOrder reports whether the master may vote, unless it abstains.
func (c markerReply) inOrder() bool { return c.isMember() && !c.succeeds && c.id != "" }

// arrival is the answer of one of several masters.
type arrival struct {
	master int
	reply  markerReply
}

// visit sends the requests to the masters concurrently, each from its own goroutine, so that a master that hangs delays
// no other. A nil request skips its master. visit waits for all answers until the node timeout, after that only for a
// quorum, and never beyond the grace.
func (s *survey) visit(ctx context.Context, requests []*markerRequest) []markerReply {
	replies := make([]markerReply, len(requests))
	arrivals := make(chan arrival, len(requests))
	late, grace := s.of.visitTimes()
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	// A master that does not answer keeps this error. A skipped master has it too, until revisit restores its earlier
	// reply.
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

// ask returns the answer of one master. If there are several masters, it first subscribes to the master's messages and
// prepares the connection for replicas: a connection that is opened later would invalidate the identity that the client
// has read.
func (s *survey) ask(ctx context.Context, i int, r *markerRequest) markerReply {
	e, m := s.e, s.e.masters[i]
	if len(e.masters) > 1 {
		m.Listen(e.keys.marker)
		listening := time.NewTimer(e.cfg.NodeTimeout)
		select {
		case <-m.Listened():
		case <-listening.C: // the client's pool may be exhausted by its other users
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
	// The marker is valid only for the connection that it was read over. If another connection was opened during the
	// call, the answer may have come over either, and so from an unknown server.
	dials := m.Dials()
	result, sent := m.Do(ctx, e.markerScript, []string{e.keys.marker}, args)
	c := readMarkerReply(result)
	// The refusal of a cluster's node is an answer too: it shows what the master is.
	if transport.FromCluster(c.err) && m.Standalone() {
		c = markerReply{cluster: true}
	}
	if c.dials = dials; m.Dials() != dials && c.err == nil {
		c.dials = unread
	}
	// The first proposal of tokens is computed from this sample.
	if c.err == nil && c.dials == dials && len(e.masters) > 1 {
		m.Sample(e.keys.marker, sent, c.micros)
	}
	return c
}

// readMarkerReply reads the reply of marker.lua. Fields that this kind of server does not have are empty: a single
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
