package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// census finds out what the masters of a quorum are: distinct servers that decide for themselves, set up by the same
// rules. It gives a marker to those that have none: all at once to a new set, which may vote immediately; to one
// that has lost its data beside others that have theirs, with a quarantine. It runs before the first acquisition and
// again when a master says that it has no marker. A single master needs none.
type census struct {
	mu      sync.Mutex
	current *count        // under way, or the last one
	ended   time.Duration // when the last one did
	usable  bool          // one found nothing against the set
	settled bool          // the last one found every master in order
}

// count is one run of the census.
type count struct {
	done chan struct{}
	err  error // what keeps this set from being used at all
}

// ErrSet is a set of masters that must not be used together.
var ErrSet = errors.New("unusable set of masters")

// Abstaining is the answer of a master that has no vote yet.
type Abstaining struct{ For time.Duration }

func (e *Abstaining) Error() string {
	if e.For == 0 {
		return "abstains: it is empty and has not been set up yet"
	}
	return fmt.Sprintf("abstains for another %v: it may have lost leases that still live", e.For)
}

// recount is how long after an incomplete or failed census the next acquisition starts another.
const recount = time.Second

// inOrder waits for the first census, which every acquisition shares. While masters are missing from it, or the set
// was refused, it is taken again, for a usable set without anybody waiting.
func (e *Engine) inOrder(ctx context.Context) error {
	if len(e.masters) == 1 {
		return nil
	}
	c := e.due()
	if c == nil {
		return nil
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return nil // the acquisition itself tells what is wrong
	}
}

// due returns the census to wait for, or nil.
func (e *Engine) due() *count {
	e.census.mu.Lock()
	defer e.census.mu.Unlock()
	c := e.census.current
	if c == nil || !e.census.settled && c.over() && e.clock.now().mono-e.census.ended >= recount {
		c = e.startCount()
	}
	if e.census.usable {
		return nil
	}
	return c
}

func (c *count) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// count starts a census unless one is under way.
func (e *Engine) count() {
	e.census.mu.Lock()
	defer e.census.mu.Unlock()
	if c := e.census.current; c == nil || c.over() {
		e.startCount()
	}
}

func (e *Engine) startCount() *count {
	c := &count{done: make(chan struct{})}
	e.census.current, e.census.settled = c, false
	if !e.spawn(func() { e.finishCount(c) }) {
		close(c.done)
	}
	return c
}

func (e *Engine) finishCount(c *count) {
	answered, gave, err := e.takeCensus(e.life)
	e.census.mu.Lock()
	news := gave || !e.census.usable
	c.err, e.census.ended = err, e.clock.now().mono
	e.census.settled = err == nil && answered == len(e.masters)
	e.census.usable = err == nil && answered >= e.quorum()
	e.census.mu.Unlock()
	close(c.done)
	if news {
		for _, m := range e.masters {
			m.wakeRooms()
		}
	}
}

// papers are what one master showed.
type papers struct {
	rules, run, role string
	cluster          bool
	err              error
}

// looks is how many times a set with some markers missing is looked at before it is taken for one that lost data:
// another process may be giving them out at this moment.
const looks = 3

// takeCensus returns how many masters answered, and whether any was given a marker.
func (e *Engine) takeCensus(ctx context.Context) (answered int, gave bool, err error) {
	for look := 1; ; look++ {
		all := e.visit(ctx, "look", nil)
		if err := e.judge(all); err != nil {
			return 0, false, err
		}
		marked := 0
		answered = 0
		for _, p := range all {
			if p.err == nil {
				answered++
			}
			if p.rules != "" {
				marked++
			}
		}
		switch {
		case marked == answered:
			return answered, false, nil
		case answered == len(all) && marked == 0:
			return answered, true, e.judge(e.visit(ctx, "birth", nil))
		case look == looks:
			lacks := func(i int) bool { return all[i].err == nil && all[i].rules == "" }
			return answered, true, e.judge(e.visit(ctx, "return", lacks))
		}
		pause := time.NewTimer(50*time.Millisecond + rand.N(100*time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return 0, false, nil
		}
	}
}

// visit asks the chosen masters at once; nil chooses all.
func (e *Engine) visit(ctx context.Context, purpose string, chosen func(int) bool) []papers {
	all := make([]papers, len(e.masters))
	var visits sync.WaitGroup
	for i, m := range e.masters {
		if chosen != nil && !chosen(i) {
			continue
		}
		visits.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, e.cfg.NodeTimeout)
			defer cancel()
			all[i] = readPapers(m.exec(bounded, e.programs.marker, []string{e.markerKey}, []string{purpose, e.rules(), e.quarantine}))
		})
	}
	visits.Wait()
	return all
}

// rules is what all clients of a set must agree on, as the marker keeps it.
func (e *Engine) rules() string {
	return fmt.Sprintf("%d masters, quorum %d, longest TTL %v", len(e.masters), e.quorum(), e.cfg.Quarantine)
}

// judge refuses a set that cannot keep what a quorum promises.
func (e *Engine) judge(all []papers) error {
	seen := make(map[string]int)
	for i, p := range all {
		where := fmt.Sprintf("master %d (%s)", i, e.masters[i].addr())
		switch {
		case p.err != nil:
			continue
		case p.role == "slave":
			return fmt.Errorf("%w: %s is a replica: it would follow another's decisions", ErrSet, where)
		case p.cluster:
			return fmt.Errorf("%w: %s is a node of a cluster: it holds only some of the names", ErrSet, where)
		case p.rules != "" && p.rules != e.rules():
			return fmt.Errorf("%w: %s was set up for %q, this client is for %q", ErrSet, where, p.rules, e.rules())
		}
		if other, twice := seen[p.run]; twice && p.run != "" {
			return fmt.Errorf("%w: %s and master %d (%s) are the same server", ErrSet, where, other, e.masters[other].addr())
		}
		seen[p.run] = i
	}
	return nil
}

// ofCluster are the refusals of a node of a cluster that does not serve the marker's slot.
var ofCluster = []string{"CLUSTERDOWN", "MOVED", "ASK", "TRYAGAIN"}

func readPapers(r rueidis.RedisResult) papers {
	fields, err := r.ToArray()
	if err != nil {
		refusal, is := rueidis.IsRedisErr(err)
		if is && slices.Contains(ofCluster, refusalCode(refusal.Error())) {
			return papers{cluster: true}
		}
		return papers{err: err}
	}
	if len(fields) != 6 {
		return papers{err: fmt.Errorf("malformed reply of %d fields", len(fields))}
	}
	text := row(fields)
	return papers{rules: text.text(1), run: text.text(3), role: text.text(4), cluster: text.text(5) == "1"}
}
