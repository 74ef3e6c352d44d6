package masterset

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

// askAll sends the requests to the masters concurrently, each from its own goroutine, so that a master that hangs
// delays no other. It waits for all answers until the first limit, after that only for a quorum, and never beyond the
// second limit. Every answer counts until the first limit. After that a quorum decides, so that a dead master costs a
// locker no more than one node timeout at its start.
func (s *Set) askAll(ctx context.Context, requests []*request) []reply {
	type answer struct {
		master int
		reply  reply
	}
	answers := make(chan answer, len(requests))
	forAll, forQuorum := s.limits()
	ctx, cancel := context.WithTimeout(ctx, forQuorum)
	defer cancel()
	replies := make([]reply, len(requests))
	open := 0
	for i, r := range requests {
		replies[i].err = &transport.NoReply{After: forQuorum} // unless it answers in time
		if r == nil {
			continue
		}
		if !s.cfg.Spawn(func() { answers <- answer{i, s.askOne(ctx, i, r)} }) {
			return replies
		}
		open++
	}
	timeout := time.NewTimer(forAll)
	defer timeout.Stop()
	for late, got := false, 0; open > 0 && (!late || got < s.view.quorum()); {
		select {
		case a := <-answers:
			replies[a.master] = a.reply
			open--
			if a.reply.err == nil {
				got++
			}
		case <-timeout.C:
			late = true
		case <-ctx.Done():
			return replies
		}
	}
	return replies
}

// limits returns how long to wait for all masters, and how long for a quorum. Neither affects safety: a master that did
// not answer in time has no vote until a later bootstrap has read its marker.
func (s *Set) limits() (forAll, forQuorum time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.usable {
		return s.cfg.NodeTimeout, s.grace
	}
	return s.grace / 2, s.grace // who answers later gets a missing marker a pass later, and so its quarantine
}

// unverified is a number of dialled connections that no client reaches. It means that the marker was read over a
// connection that is being replaced.
const unverified = ^uint64(0)

// askOne returns the answer of one master. If there are several masters, it first subscribes to the master's messages
// and prepares the connection for replicas: a connection that is opened later would invalidate the identity that the
// client has read.
func (s *Set) askOne(ctx context.Context, i int, r *request) reply {
	m, several := s.cfg.Masters[i], len(s.cfg.Masters) > 1
	if several {
		m.Listen(s.cfg.Key)
		listening := time.NewTimer(s.cfg.NodeTimeout)
		select {
		case <-m.Listened():
		case <-listening.C: // the client's pool may be exhausted by its other users
		case <-ctx.Done():
		}
		listening.Stop()
		m.Prepare(ctx)
	}
	args := r.args(s.view.rules(), Quarantine(s.cfg.LongestTTL))
	call := func() (reply, clock.Instant, uint64) {
		dials := m.Dials()
		result, sent := m.Do(ctx, s.script, []string{s.cfg.Key}, wire.Vote{}, args)
		return readReply(result), sent, dials
	}
	// The marker is valid only for the connection that it was read over. If another connection was opened during the
	// call, the answer may have come over either, and so from an unknown server: mostly the call itself has opened it.
	answer, sent, dials := call()
	if answer.err == nil && m.Dials() != dials {
		answer, sent, dials = call()
	}
	// The refusal of a cluster's node is an answer too: it shows what the master is.
	if transport.FromCluster(answer.err) && m.Standalone {
		answer = reply{cluster: true}
	}
	if answer.dials = dials; m.Dials() != dials && answer.err == nil {
		answer.dials = unverified
	}
	// The first proposal of tokens is computed from this sample.
	if answer.err == nil && answer.dials == dials && several {
		m.Sample(s.cfg.Key, sent, answer.micros)
	}
	return answer
}

// purpose is what a call of marker.lua is for.
type purpose string

const (
	forSingle purpose = "single"  // of a master that decides alone
	look      purpose = "look"    // changes nothing except a run id that has changed
	join      purpose = "join"    // gives a marker to a master without one, or with the one that it replaces
	note      purpose = "note"    // records terms
	succeed   purpose = "succeed" // begins the next term
)

// request is a call of marker.lua.
type request struct {
	purpose purpose
	set     string
	seat    int
	seats   string // the addresses of all masters, by seat
	terms   terms  // of the seats, for the master to record
	instead string // id of the set whose marker is replaced
}

func (r *request) args(rules string, quarantine time.Duration) []string {
	return []string{
		string(r.purpose), layout, rules, r.set, strconv.Itoa(r.seat), r.seats,
		strconv.FormatInt(quarantine.Milliseconds(), 10), r.terms.text(), r.instead,
	}
}

// marker is what a master stores of itself. A master without a marker has empty fields, and one that decides alone has
// a layout only.
type marker struct {
	layout, rules, set, seat, seats, run, id string
	terms                                    terms
}

// reply is the answer of one master.
type reply struct {
	marker    marker
	run, role string // of the server that answers; its run id is empty if the client may not read it
	cluster   bool
	micros    int64         // the server's time
	abstains  time.Duration // until the end of its quarantine
	dials     uint64        // of the client's connections, before the marker was read
	err       error
}

// readReply reads the reply of marker.lua.
func readReply(r rueidis.RedisResult) reply {
	messages, err := r.ToArray()
	if err != nil {
		return reply{err: err}
	}
	fields := make([]string, len(messages))
	for i := range messages {
		if n, err := messages[i].ToInt64(); err == nil {
			fields[i] = strconv.FormatInt(n, 10)
		} else {
			fields[i], _ = messages[i].ToString()
		}
	}
	return newReply(fields)
}

// newReply returns the reply with these fields. A number that is malformed counts as 0.
func newReply(fields []string) reply {
	if len(fields) != 13 {
		return reply{err: fmt.Errorf("malformed reply of %d fields", len(fields))}
	}
	micros, _ := strconv.ParseInt(fields[0], 10, 64)
	until, _ := strconv.ParseInt(fields[6], 10, 64)
	left := max(until, 0)*1000 - micros // microseconds
	return reply{
		marker: marker{
			layout: fields[1], rules: fields[2], set: fields[3], seat: fields[4], seats: fields[5],
			run: fields[11], id: fields[8], terms: readTerms(fields[12]),
		},
		run: fields[7], role: fields[9], cluster: fields[10] == "1", micros: micros,
		abstains: time.Duration(max(left, 0)) * time.Microsecond,
	}
}

// layout is the version of the data that the scripts keep in a lock's keys. Clients of different layouts refuse each
// other.
const layout = "2"

// readTerms parses the field of a marker. It returns nil if the field does not have the form that marker.lua writes.
func readTerms(text string) terms {
	var all terms
	for _, part := range strings.Fields(text) {
		number, run, _ := strings.Cut(part, ":")
		n, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			return nil
		}
		all = append(all, term{n, run})
	}
	return all
}

// text formats the terms as marker.lua reads them.
func (t terms) text() string {
	parts := make([]string, 0, len(t))
	for _, one := range t {
		parts = append(parts, strconv.FormatUint(one.number, 10)+":"+one.run)
	}
	return strings.Join(parts, " ")
}
