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

// request is what a master is asked of its marker; see marker.lua.
type request struct {
	purpose, set, seat, seats string
	instead                   string // the set whose marker is replaced
	unmarked                  string // the server's time at which it had no marker
}

// unread is a number of connections that no client opens: the marker was read over a connection that is being replaced.
const unread = ^uint64(0)

func all(n int, r request) []*request {
	requests := make([]*request, n)
	for i := range requests {
		requests[i] = &r
	}
	return requests
}

// card is what one master showed.
type card struct {
	layout, rules, set, seat, seats, run, id, role string
	rival                                          string // another set than that of the others, founded at the same time
	cluster                                        bool
	micros                                         string // the server's time
	dials                                          uint64 // of the client, before the marker was read
	err                                            error
}

// arrival is what one of several masters showed.
type arrival struct {
	master int
	card   card
}

// visit asks the masters at once; nil leaves one out. It waits for all of them, but after the node timeout only for a
// quorum, and for that only within the grace.
func (s *membership) visit(ctx context.Context, requests []*request) []card {
	cards := make([]card, len(requests))
	arrivals := make(chan arrival, len(requests))
	late, grace := s.visitTimes()
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	open := 0
	for i, r := range requests {
		cards[i].err = &transport.NoReply{After: grace}
		if r == nil {
			continue
		}
		if !s.e.spawn(func() { arrivals <- arrival{i, s.ask(ctx, i, r)} }) {
			return cards
		}
		open++
	}
	timeout := time.NewTimer(late)
	defer timeout.Stop()
	for isLate, got := false, 0; open > 0 && (!isLate || got < s.e.quorum()); {
		select {
		case a := <-arrivals:
			cards[a.master] = a.card
			open--
			if a.card.err == nil {
				got++
			}
		case <-timeout.C:
			isLate = true
		case <-ctx.Done():
			return cards
		}
	}
	return cards
}

// ask returns what one master shows. Of several, each is listened to before: that connection, opened later, would make
// the master a stranger again.
func (s *membership) ask(ctx context.Context, i int, r *request) card {
	e, m := s.e, s.e.masters[i]
	if len(e.masters) > 1 {
		m.Listen()
		listening := time.NewTimer(e.cfg.NodeTimeout)
		select {
		case <-m.Listened():
		case <-listening.C: // the client's pool may be used up by others
		case <-ctx.Done():
		}
		listening.Stop()
	}
	quarantine := millis(max(e.cfg.LongestTTL, quarantineMin))
	args := []string{r.purpose, layout, e.rules(), r.set, r.seat, r.seats, quarantine, s.runBefore(i), r.instead, r.unmarked}
	dials := m.Dials()
	result, _ := m.Do(ctx, e.markerScript, []string{e.markerKey}, args)
	c := readCard(result)
	if transport.FromCluster(c.err) && m.Standalone() {
		c = card{cluster: true}
	}
	if c.dials = dials; m.Dials() != dials && c.err == nil {
		c.dials = unread
	}
	return c
}

// rules is what all clients of a set must agree on, as the marker keeps it.
func (e *Engine) rules() string {
	return fmt.Sprintf("%d masters, quorum %d, longest TTL %v", len(e.masters), e.quorum(), e.cfg.LongestTTL)
}

// validate refuses a set that cannot keep what is promised.
func (e *Engine) validate(cards []card) error {
	runs, seats := make(map[string]int), make(map[string]int)
	set := ""
	for i, c := range cards {
		where := fmt.Sprintf("master %d (%s)", i, e.masters[i].Addr())
		if c.err == nil && c.layout != "" && c.layout != layout {
			return fmt.Errorf("%w: %s keeps its locks in layout %s, this client in layout %s", ErrSet, where, c.layout, layout)
		}
		switch {
		case c.cluster && len(cards) == 1:
			return fmt.Errorf("%w: %s: %s", ErrSet, where, transport.ClusterAdvice)
		case c.err != nil || len(cards) == 1:
			continue
		case c.role == "slave":
			return fmt.Errorf("%w: %s is a replica: it would follow another's decisions", ErrSet, where)
		case c.cluster:
			return fmt.Errorf("%w: %s is a node of a cluster: it holds only some of the names", ErrSet, where)
		case c.rules != "" && c.rules != e.rules():
			return fmt.Errorf("%w: %s was set up for %q, this client is for %q", ErrSet, where, c.rules, e.rules())
		case set != "" && c.set != "" && c.set != set:
			return fmt.Errorf("%w: %s belongs to another set of masters than those before it", ErrSet, where)
		}
		for _, seen := range []struct {
			by  map[string]int
			key string
		}{{runs, c.run}, {seats, c.seat}} {
			if other, twice := seen.by[seen.key]; twice && seen.key != "" {
				return fmt.Errorf("%w: %s and master %d (%s) are the same server", ErrSet, where, other, e.masters[other].Addr())
			}
			seen.by[seen.key] = i
		}
		if c.set != "" {
			set = c.set
		}
	}
	return nil
}

func (e *Engine) refusedMember(i int, seats []string) error {
	return fmt.Errorf("%w: master %d (%s) has no marker, and the set that the others belong to has its masters at %v",
		ErrSet, i, e.masters[i].Addr(), seats)
}

func readCard(r rueidis.RedisResult) card {
	fields, err := r.ToArray()
	if err != nil {
		return card{err: err}
	}
	if len(fields) != 11 {
		return card{err: fmt.Errorf("malformed reply of %d fields", len(fields))}
	}
	text := row(fields)
	return card{
		micros: strconv.FormatInt(text.number(0), 10), layout: text.text(1), rules: text.text(2), set: text.text(3), seat: text.text(4), seats: text.text(5),
		run: text.text(7), id: text.text(8), role: text.text(9), cluster: text.text(10) == "1",
	}
}
