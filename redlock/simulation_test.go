package redlock_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

var (
	oneSeed  = flag.Int64("redlock.seed", 0, "simulate this seed alone")
	seeds    = flag.Int("redlock.seeds", testredis.Few(1, 3), "how many seeds are simulated")
	fromSeed = flag.Int64("redlock.from", 2, "the first of them; 2 to 4 have most of the conditions")
)

// What a simulation consists of.
const (
	simMasters = 5
	simPeers   = 9
	simNames   = 3
	simTTL     = time.Second
	simRest    = 15 * time.Second // until everything must work again: backoff, quarantine, a clock set back
	simSkew    = 20 * time.Millisecond
	simAbsence = 2 * time.Second // of all processes, where a master is replaced: the quarantine
)

// The fake time of a simulation under faults, and of conversions and adoptions.
var (
	simFor     = testredis.Few(5*time.Second, 12*time.Second)
	convertFor = testredis.Few(3*time.Second/2, 3*time.Second)
)

// TestSimulation runs the real engine and scripts over five masters in fake time, under faults drawn from a seed.
// A seed fixes the faults, the delays of messages and what the processes do; the order in which goroutines run within
// one moment it does not.
func TestSimulation(t *testing.T) {
	t.Parallel() // it computes while others wait in real time
	for _, seed := range chosenSeeds(*seeds) {
		runInFakeTime(t, fmt.Sprintf("seed %d", seed), simMasters, func(w *world) {
			w.Logf("to run it again: %sgo test ./redlock -run 'TestSimulation$' -redlock.seed=%d",
				testredis.Few("", "FENCELOCK_TESTS=all "), seed)
			s := newSimulation(w, seed)
			s.run(func(ctx context.Context, p *simPeer, work *sync.WaitGroup) {
				work.Go(func() {
					for ctx.Err() == nil {
						s.step(ctx, p)
					}
				})
			})
		})
	}
}

// chosenSeeds are n seeds, or the one that is simulated alone.
func chosenSeeds(n int) (chosen []int64) {
	if *oneSeed != 0 {
		return []int64{*oneSeed}
	}
	for i := range n {
		chosen = append(chosen, *fromSeed+int64(i))
	}
	return chosen
}

type simulation struct {
	*world
	*conditions
	seed    int64
	checker *judge.Judge
	peers   []*simPeer
	skews   []time.Duration // of the masters' clocks, where no step has struck them
	names   []string
	patient bool // some waits are not cut short; see limit

	tickets   tickets
	showsRuns bool            // the masters show their run ids, as real ones do
	next      *testredis.Mini // that has replaced a master
}

// dice returns a source of its own for each part of a simulation, so that one part's draws do not move another's.
func dice(seed int64, part, index int) *rand.Rand {
	return rand.New(rand.NewPCG(uint64(seed), uint64(part)<<32|uint64(index)))
}

// The parts of a simulation that draw.
const (
	diceWorld = iota
	diceWork
	diceDelay
	diceFaults
	diceConditions
	diceBreaks
	diceTickets
)

// run has the processes work under faults, and then checks that all is well again. begin starts the goroutines of one.
func (s *simulation) run(begin func(ctx context.Context, p *simPeer, work *sync.WaitGroup)) {
	f := newFaults(s)
	stage := func(d time.Duration, end func()) {
		ctx, stop := context.WithTimeout(s.Ctx, d)
		defer stop()
		var work sync.WaitGroup
		for _, p := range s.peers {
			begin(ctx, p, &work)
		}
		if rng := dice(s.seed, diceBreaks, 0); rng.IntN(2) == 0 {
			operator := s.Process(rwlock.WithMeta("operator")) // who connects before the faults
			work.Go(func() { s.breakHolds(ctx, operator, rng) })
		}
		f.run(ctx)
		end()
		work.Wait()
	}
	left := simFor
	if s.replaces {
		first := simFor/4 + upTo(f.rng, simFor/2)
		stage(first, f.ends.Wait)
		s.replaceMaster(f)
		left -= first
	}
	stage(left, f.heal)
	s.settle()
	s.Logf("%s, %d of %d tickets adopted %v", s.checker.Summary(), s.tickets.used, len(s.tickets.all), f.struck)
	s.Log(s.conditions)
}

// patience is far more than anybody has to wait in a simulation without faults, and less than the TTL: by then a hold
// has expired that another has waited for.
const patience = 5 * time.Second

var errStarved = fmt.Errorf("not served within %v", patience)

// limit bounds a wait by less than d, or where the simulation is patient every second by what it must not take.
func (s *simulation) limit(
	ctx context.Context, rng *rand.Rand, d time.Duration,
) (context.Context, context.CancelFunc) {
	if s.patient && rng.IntN(2) == 0 {
		return context.WithTimeoutCause(context.WithoutCancel(ctx), patience, errStarved)
	}
	return context.WithTimeout(ctx, upTo(rng, d))
}

// outOfOrder is a master that an error names as not in order.
var outOfOrder = regexp.MustCompile(`[:;] master \d \(`)

// accept lets pass what the faults explain. A call may be refused if the masters that are in order make no quorum.
func (s *simulation) accept(err error) {
	gaveUp := errors.Is(err, rwlock.ErrNotAcquired) && !errors.Is(err, errStarved)
	refused := errors.Is(err, rwlock.ErrOption) && len(outOfOrder.FindAllString(err.Error(), -1)) > simMasters/2
	if !gaveUp && !refused && !errors.Is(err, rwlock.ErrNoQuorum) {
		s.Errorf("seed %d: %v", s.seed, err)
	}
}

// settle checks, after all faults have ended, that everybody gets every lock again and that nothing is left behind.
func (s *simulation) settle() {
	for _, p := range s.peers {
		for _, link := range p.Links {
			link.Restore()
			link.Delay(time.Millisecond)
		}
	}
	time.Sleep(simRest)
	var work sync.WaitGroup
	for _, p := range s.peers {
		work.Go(func() {
			for _, name := range s.names {
				if err := s.visit(name, func() (*rwlock.Lease, error) { return p.Lock(s.Soon(5*time.Second), name) }); err != nil {
					s.Errorf("seed %d: all is well again, but %v", s.seed, err)
					return
				}
			}
		})
	}
	work.Wait()
	time.Sleep(simTTL)
	s.tryAll()
	for _, name := range s.names {
		state := expect.NoError(s.peers[0].Inspect(s.Soon(time.Second), name)).In(s)
		for _, m := range state.Masters {
			require.Empty(s, m.Holders, "seed %d: left behind on master %d", s.seed, m.Index)
			require.Empty(s, m.Waiters, "seed %d: left behind on master %d", s.seed, m.Index)
		}
	}
}

// take takes a lock before the eyes of the checker.
func (s *simulation) take(name string, lock func() (*rwlock.Lease, error)) (*rwlock.Lease, error) {
	at := s.checker.Begin(name)
	lease, err := lock()
	if err == nil {
		s.checker.Acquired(at, lease)
	}
	return lease, err
}

// visit takes a lock and gives it back, which has to succeed if it was granted.
func (s *simulation) visit(name string, lock func() (*rwlock.Lease, error)) error {
	lease, err := s.take(name, lock)
	if err != nil {
		return err
	}
	if err := lease.Release(s.Ctx); err != nil {
		s.Errorf("seed %d: all is well again, but release: %v", s.seed, err)
	}
	return nil
}

// accepted takes a lock. It returns nil where the faults explain that it was not granted.
func (s *simulation) accepted(name string, lock func() (*rwlock.Lease, error)) *rwlock.Lease {
	lease, err := s.take(name, lock)
	if err != nil {
		s.accept(err)
		return nil
	}
	return lease
}

// tryAll has each process get each lock by a single attempt, one after the other: all locks are free.
func (s *simulation) tryAll() {
	for _, p := range s.peers {
		for _, name := range s.names {
			if err := s.visit(name, func() (*rwlock.Lease, error) { return p.TryLock(s.Soon(time.Second), name) }); err != nil {
				s.Errorf("seed %d: %q is free, but a single attempt of peer %d fails: %v", s.seed, name, p.index, err)
				continue
			}
			if s.conditions != nil && s.sends[p.index] {
				time.Sleep(simTTL / 2) // until it has arrived everywhere
			}
		}
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(rng.Int64N(int64(d)) + 1)
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// simPeer is a process of a simulation.
type simPeer struct {
	*process
	index int
	net   testkit.Net
	rng   *rand.Rand // of its work alone
	pass  *rand.Rand // of the leases that it hands over
	opts  []rwlock.Option
}

// step is one thing that a process does: an acquisition of any kind, its work, its end.
func (s *simulation) step(ctx context.Context, p *simPeer) {
	pause(ctx, upTo(p.rng, 40*time.Millisecond))
	if ctx.Err() != nil {
		return
	}
	if p.rng.IntN(40) == 0 {
		s.restart(p)
	}
	name := s.names[p.rng.IntN(len(s.names))]
	var opts []rwlock.LockOption
	if p.rng.IntN(5) == 0 {
		opts = append(opts, rwlock.WithoutRenewal())
	}
	if p.rng.IntN(12) == 0 {
		opts = append(opts, rwlock.WithMinHold(1+upTo(p.rng, simTTL)))
	}
	wait, cancel := context.WithTimeout(ctx, upTo(p.rng, 4*simTTL))
	defer cancel()
	lease := s.accepted(name, func() (*rwlock.Lease, error) { return p.acquire(wait, name, opts) })
	if lease == nil {
		return
	}
	for range p.rng.IntN(10) / 8 * 2 { // shorter, longer, or one after the other
		_ = lease.SetTTL(wait, 100*time.Millisecond+upTo(p.rng, simTTL-100*time.Millisecond))
	}
	if p.rng.IntN(5) == 0 {
		s.convert(ctx, p, lease)
	}
	if p.pass.IntN(8) == 0 {
		s.detach(ctx, p.pass, lease)
		_ = lease.Release(ctx) // where it is held on
		if lease = s.adopt(ctx, p, p.pass); lease == nil {
			return
		}
	}
	p.use(ctx, lease)
	s.checker.Sweep()
}

// convert upgrades a reader or downgrades a writer, or tries to.
func (s *simulation) convert(ctx context.Context, p *simPeer, lease *rwlock.Lease) {
	wait, cancel := s.limit(ctx, p.rng, simTTL)
	defer cancel()
	convert := lease.Upgrade
	if lease.Mode() == rwlock.Write {
		convert = lease.Downgrade
	}
	at := s.checker.Begin(lease.Name())
	switch err := convert(wait); {
	case err == nil:
		s.checker.Acquired(at, lease)
	case !errors.Is(err, rwlock.ErrUpgrade) && !errors.Is(err, rwlock.ErrLost) && !errors.Is(err, rwlock.ErrReleased):
		s.accept(err)
	}
}

// restart ends the process and begins it anew with what it has learnt forgotten.
func (s *simulation) restart(p *simPeer) {
	if err := p.Close(); err != nil {
		s.Errorf("seed %d: close: %v", s.seed, err)
	}
	p.Start(p.opts...)
}

func (p *simPeer) acquire(ctx context.Context, name string, opts []rwlock.LockOption) (*rwlock.Lease, error) {
	switch n := p.rng.IntN(10); {
	case n < 5:
		return p.Lock(ctx, name, opts...)
	case n < 8:
		return p.RLock(ctx, name, opts...)
	case n < 9:
		return p.TryLock(ctx, name, opts...)
	default:
		return p.TryRLock(ctx, name, opts...)
	}
}

// use works under the lease, mostly shortly, sometimes beyond its TTL without looking at it.
func (p *simPeer) use(ctx context.Context, lease *rwlock.Lease) {
	switch n := p.rng.IntN(100); {
	case n < 97:
		pause(ctx, upTo(p.rng, 20*time.Millisecond))
	case n < 99:
		pause(ctx, upTo(p.rng, 3*simTTL/2))
	default: // its holder forgets it for longer than any lease without renewal
		select {
		case <-lease.Done():
		case <-time.After(2 * simTTL):
		case <-ctx.Done():
		}
	}
	_ = lease.Release(ctx) // that it was lost or is unconfirmed is part of the game
}

// TestSimulatedSharedHolds is TestSimulation with processes whose goroutines share an RWMutex: blocks of tokens, local
// hand-overs, messages of those who wait and lingering, over several masters and under all faults.
func TestSimulatedSharedHolds(t *testing.T) {
	n := *seeds / 3 // a seed is as much work as three of TestSimulation
	if n == 0 && *oneSeed == 0 {
		testredis.NeedAll(t, "long simulations")
	}
	for _, seed := range chosenSeeds(max(1, n)) {
		runInFakeTime(t, fmt.Sprintf("seed %d", seed), simMasters, func(w *world) { newSimulation(w, seed).runSharedHolds() })
	}
}

// simThreads is how many goroutines of a process share a lock.
const simThreads = 3

func (s *simulation) runSharedHolds() {
	opts := make([][]rwlock.MutexOption, simPeers)
	for i, p := range s.peers {
		if p.rng.IntN(2) == 0 {
			opts[i] = append(opts[i], rwlock.WithLinger(upTo(p.rng, simTTL)))
		}
	}
	s.run(func(ctx context.Context, p *simPeer, work *sync.WaitGroup) {
		for i := range simThreads {
			rng := dice(s.seed, diceWork, 1000+p.index*simThreads+i)
			work.Go(func() {
				for ctx.Err() == nil {
					s.sharedStep(ctx, p, rng, opts[p.index])
				}
			})
		}
	})
}

// sharedStep is one section of an RWMutex, of any kind.
func (s *simulation) sharedStep(ctx context.Context, p *simPeer, rng *rand.Rand, opts []rwlock.MutexOption) {
	pause(ctx, upTo(rng, 20*time.Millisecond))
	name := s.names[rng.IntN(len(s.names))]
	mu := p.RWMutex(name, opts...)
	lock, mode := mu.Lock, rwlock.Write
	switch rng.IntN(8) {
	case 0:
		lock = mu.TryLock
	case 1, 2, 3:
		lock, mode = mu.RLock, rwlock.Read
	case 4:
		lock, mode = mu.TryRLock, rwlock.Read
	}
	wait, cancel := context.WithTimeout(ctx, upTo(rng, 4*simTTL))
	defer cancel()
	at := s.checker.Begin(name)
	if err := lock(wait); err != nil {
		if ctx.Err() == nil {
			s.accept(err)
		}
		return
	}
	v := judge.NewVisit(mu, name, mode)
	s.checker.Acquired(at, v)
	pause(ctx, upTo(rng, 20*time.Millisecond))
	if rng.IntN(3) == 0 {
		s.convertVisit(ctx, rng, mu, v)
	}
	s.checker.Sweep()
	_ = v.Leave(context.Background(), mu) // that it was lost or is unconfirmed is part of the game
}

// convertVisit has one who is in upgrade or downgrade, or try to.
func (s *simulation) convertVisit(ctx context.Context, rng *rand.Rand, mu *rwlock.RWMutex, v *judge.Visit) {
	wait, cancel := s.limit(ctx, rng, simTTL)
	defer cancel()
	before := v.Fence()
	after, convert := before, mu.Upgrade
	if after.Mode = rwlock.Write; before.Mode == rwlock.Write {
		after.Mode, convert = rwlock.Read, mu.Downgrade
		v.Is(after) // before the call: others may enter before it returns
	}
	at := s.checker.Begin(before.Resource)
	switch err := convert(wait); {
	case err == nil:
		after.Token = mu.Token()
		v.Is(after)
		s.checker.Acquired(at, v)
		return
	case !errors.Is(err, rwlock.ErrUpgrade) && !errors.Is(err, rwlock.ErrLost):
		s.accept(err)
	}
	v.Is(before)
}

var conversionSeeds = flag.Int("redlock.conversions", testredis.Few(1, 2),
	"how many seeds of upgrades and downgrades are simulated")

// TestSimulatedConversions has readers upgrade and writers downgrade, as leases and in an RWMutex, beside others who
// come and give up, with delays drawn from a seed: on one master, whose scripts the model judges, and over three, of
// which one is down for every second seed. Nobody gets in between, tokens go up, and nobody waits for ever.
func TestSimulatedConversions(t *testing.T) {
	t.Parallel() // as TestSimulation
	for i := range *conversionSeeds {
		seed := *fromSeed + int64(i)
		inFakeTime(t, 1, func(w *world) {
			w.Mini.CheckScripts()
			simulateConversions(w, seed, 0, rwlock.WithTTL(2*patience))
		})
		inFakeTime(t, 3, func(w *world) {
			simulateConversions(w, seed, int(seed%2), rwlock.WithTTL(2*patience), redlock.WithNodeTimeout(80*time.Millisecond))
		})
	}
}

// oneLock is a simulation of one lock, without the conditions of the others.
func oneLock(w *world, seed int64) *simulation {
	checker := judge.For(w, fmt.Sprintf("seed %d", seed))
	return &simulation{world: w, seed: seed, checker: checker, names: []string{"n"}}
}

// addPeer starts a process for which so many masters are down.
func (s *simulation) addPeer(rng *rand.Rand, down int, opts ...rwlock.Option) *simPeer {
	p := &simPeer{process: s.Connect(testkit.Net{}), index: len(s.peers), rng: rng, opts: opts}
	for _, link := range p.Links {
		link.Delay(upTo(rng, 10*time.Millisecond))
	}
	p.Start(opts...)
	p.Section("warm-up")
	p.CutOff(testkit.Span(0, down)...)
	s.peers = append(s.peers, p)
	return p
}

func simulateConversions(w *world, seed int64, down int, opts ...rwlock.Option) {
	s := oneLock(w, seed)
	s.patient = true
	mutexes := int(seed / 2 % 2 * 2)
	ctx, stop := context.WithTimeout(w.Ctx, convertFor)
	defer stop()
	var work sync.WaitGroup
	for i := range 4 {
		p := s.addPeer(dice(seed, diceWork, i), down, opts...)
		work.Go(func() {
			for ctx.Err() == nil {
				s.convertLease(ctx, p)
			}
		})
		for j := range mutexes {
			rng := dice(seed, diceWork, 100+10*i+j)
			work.Go(func() {
				for ctx.Err() == nil {
					s.convertMutex(ctx, p, rng)
				}
			})
		}
	}
	work.Wait()
	s.settle()
	require.Greater(w, s.checker.Grants(), 50, "seed %d", seed)
}

// convertLease takes a lease and has it converted some times.
func (s *simulation) convertLease(ctx context.Context, p *simPeer) {
	pause(ctx, upTo(p.rng, 10*time.Millisecond))
	wait, cancel := s.limit(ctx, p.rng, 400*time.Millisecond)
	defer cancel()
	lock := p.Lock
	if p.rng.IntN(3) > 0 {
		lock = p.RLock
	}
	lease := s.accepted("n", func() (*rwlock.Lease, error) { return lock(wait, "n") })
	if lease == nil {
		return
	}
	for range p.rng.IntN(4) {
		pause(ctx, upTo(p.rng, 10*time.Millisecond))
		s.convert(ctx, p, lease)
		s.checker.Sweep()
	}
	s.Release(lease)
}

// convertMutex does the same in an RWMutex.
func (s *simulation) convertMutex(ctx context.Context, p *simPeer, rng *rand.Rand) {
	pause(ctx, upTo(rng, 10*time.Millisecond))
	wait, cancel := s.limit(ctx, rng, 400*time.Millisecond)
	defer cancel()
	mu := p.RWMutex("n")
	lock, mode := mu.Lock, rwlock.Write
	if rng.IntN(3) > 0 {
		lock, mode = mu.RLock, rwlock.Read
	}
	at := s.checker.Begin("n")
	if err := lock(wait); err != nil {
		s.accept(err)
		return
	}
	v := judge.NewVisit(mu, "n", mode)
	s.checker.Acquired(at, v)
	for range rng.IntN(4) {
		pause(ctx, upTo(rng, 10*time.Millisecond))
		s.convertVisit(ctx, rng, mu, v)
		s.checker.Sweep()
	}
	require.NoError(s, v.Leave(context.Background(), mu))
}
