package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/rwlock"
)

// level says how bad a finding is.
type level int

const (
	ok level = iota
	warning
	failure
)

func (l level) String() string { return [...]string{"ok", "warning", "error"}[l] }

// finding is one line of the doctor: what was checked, what was found, and what to do about it.
type finding struct {
	level  level
	server string
	check  string
	text   string
	advice string
}

func defineDoctor(flags *flag.FlagSet) func(context.Context, *session) (int, error) {
	asJSON := flags.Bool("json", false, "one JSON object per line")
	return func(ctx context.Context, s *session) (int, error) {
		d := &doctor{target: &s.target, show: printFinding(s.out, *asJSON)}
		c, err := s.target.connect(ctx)
		switch {
		case errors.Is(err, rwlock.ErrNoQuorum):
			cause := errors.Unwrap(err)
			d.report(failure, s.target.addrs.String(), "connection", plain(cause), d.target.advice(cause))
		case err != nil:
			return 0, err
		default:
			defer c.close()
			d.examine(ctx, c)
		}
		return map[level]int{ok: statusOK, warning: statusNo, failure: statusFailed}[d.worst], cmp.Or(d.err, ctx.Err())
	}
}

// printFinding returns a function that prints a finding as it is found.
func printFinding(out io.Writer, asJSON bool) func(finding) error {
	return func(f finding) error {
		if asJSON {
			return json.NewEncoder(out).Encode(map[string]string{
				"level": f.level.String(), "server": f.server, "check": f.check, "text": f.text, "advice": f.advice,
			})
		}
		_, err := fmt.Fprintf(out, "%-7s  %s  %-11s  %s\n", f.level, f.server, f.check, oneLine(f.text))
		if err == nil && f.advice != "" {
			_, err = fmt.Fprintf(out, "%9s%s\n", "", "-> "+f.advice)
		}
		return err
	}
}

// doctor examines the servers of a target.
type doctor struct {
	target   *target
	show     func(finding) error
	err      error // of show
	worst    level
	patients []*patient
}

// patient is one server.
type patient struct {
	*doctor
	addr   string
	client rueidis.Client
	index  int               // of its master
	key    string            // a key that no lock has, which the server answers for
	info   map[string]string // what INFO shows; nil if it is refused
	offset time.Duration     // of its clock, from this machine's
	marker map[string]string // of one of several masters
	up     bool              // it runs scripts
}

func (d *doctor) report(level level, server, check, text, advice string) {
	d.worst = max(d.worst, level)
	if d.err == nil {
		d.err = d.show(finding{level, server, check, text, advice})
	}
}

func (p *patient) report(level level, check, text, advice string) {
	p.doctor.report(level, p.addr, check, text, advice)
}

// examine runs all checks.
func (d *doctor) examine(ctx context.Context, c *connection) {
	for i, client := range c.masters {
		if c.failed[i] != nil {
			d.report(failure, d.target.addrs[i], "connection", plain(c.failed[i]), d.target.advice(c.failed[i]))
			continue
		}
		nodes := client.Nodes() // of a Cluster those that have slots
		if len(nodes) == 0 {
			err := transport.ErrNoSlots
			d.report(failure, d.target.addrs.String(), "slots", err.Error(), d.target.advice(err))
		}
		for addr, node := range nodes {
			d.patients = append(d.patients, &patient{doctor: d, addr: addr, client: node, index: i})
		}
	}
	slices.SortFunc(d.patients, func(a, b *patient) int {
		return cmp.Or(cmp.Compare(a.index, b.index), strings.Compare(a.addr, b.addr))
	})
	for _, p := range d.patients {
		p.examine(ctx)
		if ctx.Err() != nil {
			return
		}
	}
	if d.target.quorum() {
		d.compareClocks()
		d.compareMarkers()
		d.compareCounters(ctx, c.locker)
	}
}

func (p *patient) examine(ctx context.Context) {
	if !p.latency(ctx) {
		return
	}
	p.learn(ctx)
	if p.target.cluster && p.info["role"] == "slave" {
		p.report(ok, "role", "replica of "+p.info["master_host"]+":"+p.info["master_port"], "")
		p.eviction()
		return
	}
	p.version()
	p.scripts(ctx)
	p.writes(ctx)
	p.rights(ctx)
	p.messages(ctx)
	p.eviction()
	p.persistence()
	p.role()
	p.clock()
	p.readMarker(ctx)
}

// do runs a command with the time limit of one answer.
func (p *patient) do(ctx context.Context, args ...string) rueidis.RedisResult {
	ctx, cancel := context.WithTimeout(ctx, p.target.timeout)
	defer cancel()
	r := p.client.Do(ctx, p.client.B().Arbitrary(args...).Build())
	if r.NonRedisError() != nil && ctx.Err() != nil {
		return rueidis.NewErrorResult(&rwlock.NoReplyError{After: p.target.timeout})
	}
	return r
}

// compareClocks reports how far the clocks of the masters are apart.
func (d *doctor) compareClocks() {
	if len(d.patients) < 2 {
		return
	}
	by := func(a, b *patient) int { return cmp.Compare(a.offset, b.offset) }
	first, last := slices.MinFunc(d.patients, by), slices.MaxFunc(d.patients, by)
	apart := last.offset - first.offset
	text := fmt.Sprintf("the clocks of the masters are at most %s apart", brief(apart))
	servers := first.addr + " and " + last.addr
	switch {
	case apart > time.Second:
		d.report(failure, servers, "clock", text, "synchronize them (NTP): a master that is more than 1 s off does not count")
	case apart > maxApart:
		d.report(warning, servers, "clock", text, "synchronize them (NTP): beyond 1 s a master does not count")
	default:
		d.report(ok, servers, "clock", text, "")
	}
}

const maxApart = 500 * time.Millisecond

// compareMarkers reports masters that do not belong together, and those without a vote.
func (d *doctor) compareMarkers() {
	var marked []*patient
	for _, p := range d.patients {
		if p.marker["set"] != "" {
			marked = append(marked, p)
		}
	}
	for _, p := range d.patients {
		switch {
		case !p.up:
		case p.marker["set"] == "" && len(marked) == 0:
			p.report(ok, "vote", firstLock(), "for masters that are certainly new, fencelock found spares that")
		case p.marker["set"] == "":
			p.report(warning, "vote", "has no marker, and other masters have: it is new, or it has lost its data",
				"start a client: the master gets a vote after the longest TTL of all clients")
		case p.marker["set"] != marked[0].marker["set"]:
			p.report(failure, "vote", "belongs to another set of masters than "+marked[0].addr,
				"check the addresses; to change the set, see redlock.WithQuarantine")
		case p.marker["rules"] != marked[0].marker["rules"]:
			p.report(failure, "vote", fmt.Sprintf("has the rules %q, and %s has %q", p.marker["rules"], marked[0].addr,
				marked[0].marker["rules"]), "all clients must agree: see redlock.WithQuarantine")
		default:
			p.vote()
		}
	}
}

// The bounds of what compareCounters looks at and reports.
const (
	mostLocks    = 1000
	mostCounters = 5
)

// compareCounters looks for locks whose counter on a master is ahead of its clock: the clock was wrong once. Such a
// master does not agree with the others on a token, so the lock is refused where another master is down. It looks at
// 1,000 locks at most, and at none where the user may not SCAN.
func (d *doctor) compareCounters(ctx context.Context, l *rwlock.Locker) {
	looked, found := 0, 0
	for state, err := range l.List(ctx, "", rwlock.WithFreeLocks()) {
		if looked++; looked > mostLocks || found >= mostCounters {
			return
		}
		for _, m := range state.Masters {
			i := slices.IndexFunc(d.patients, func(p *patient) bool { return p.index == m.Index })
			if err != nil && m.Err != nil || i < 0 || !d.patients[i].up {
				continue
			}
			ahead := time.UnixMicro(int64(m.Token)).Sub(time.Now().Add(d.patients[i].offset))
			if ahead > 2*time.Second { // a token may be a second ahead, and the offset is an estimate
				found++
				d.patients[i].report(warning, "counter", fmt.Sprintf("of lock %s is %s ahead of this server's clock, which was "+
					"wrong once: the lock is refused while another master is down", printable(state.Name), brief(ahead)),
					"take the lock for writing while a quorum of the other masters answers: that lease sets the counter back")
			}
		}
	}
}
