//go:build explore && lockers

package scenarios_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/lab/tools/noise/explore"
	"github.com/seed74116694/fencelock/rwlock"
)

var more = flag.Int("more", 0, "so many more interruptions in the scenarios of whole lockers")

const (
	linger   = 2 * time.Second
	leaseTTL = 10 * time.Second
)

// The steps of these scenarios are those of the RWMutex and its queue. What is below them runs until it blocks.
var (
	ofRWMutex = []string{"rwlock.(*RWMutex)", "rwlock.(*mutexes)", "localqueue.(*"}
	atEnd     = []string{"rwlock.(*RWMutex).onLingerEnd"}
	onMessage = []string{"rwlock.(*RWMutex).onLingerEnd", "rwlock.(*RWMutex).onContended"}
)

func TestLockAtTheEndOfLingering(t *testing.T) {
	searchLocker(t, 2, func(s *scene) explore.World {
		p := s.process(rwlock.WithLinger(linger))
		p.section(fencing.Write)
		return explore.World{
			Goroutines: []func(){func() { p.section(fencing.Write) }},
			Elapses:    []time.Duration{linger}, Started: atEnd,
		}
	})
}

func TestLocksAtTheEndOfLingering(t *testing.T) {
	searchLocker(t, 1, func(s *scene) explore.World {
		p := s.process(rwlock.WithLinger(linger))
		p.section(fencing.Write)
		return explore.World{
			Goroutines: []func(){func() { p.section(fencing.Read) }, func() { p.section(fencing.Write) }},
			Elapses:    []time.Duration{linger}, Started: atEnd,
		}
	})
}

// A single attempt that only a lock that lingers could refuse is not refused, also with other options.
func TestTryAtTheEndOfLingering(t *testing.T) {
	for name, options := range map[string][]rwlock.MutexOption{
		"same options": {rwlock.WithLinger(linger)}, "other options": nil,
	} {
		t.Run(name, func(t *testing.T) {
			searchLocker(t, 2, func(s *scene) explore.World {
				p := s.process(rwlock.WithLinger(linger))
				p.section(fencing.Write)
				other := *p
				other.mu = p.locker.RWMutex("n", options...)
				s.users = append(s.users, &other)
				return explore.World{
					Goroutines: []func(){func() { other.leave(other.enter(fencing.Write, other.mu.TryLock)) }},
					Elapses:    []time.Duration{linger}, Started: atEnd,
				}
			})
		})
	}
}

// Another client wants a lock that lingers, while a goroutine of the process takes it again and time goes by.
func TestAnotherClientWantsALingeringLock(t *testing.T) {
	for _, mode := range []fencing.Mode{fencing.Read, fencing.Write} {
		t.Run(mode.String(), func(t *testing.T) {
			searchLocker(t, 1, func(s *scene) explore.World {
				p, q := s.process(rwlock.WithLinger(linger)), s.process()
				s.exchangeMessages(p, q)
				p.section(fencing.Write)
				return explore.World{
					Goroutines: []func(){func() { p.section(mode) }, func() { q.section(fencing.Write) }},
					Elapses:    []time.Duration{linger}, Started: onMessage, Patience: time.Minute,
				}
			})
		})
	}
}

// The same client is let in at once, not when the time to linger is over: the report that it waits finds the lock
// lingering, taken again, or on its way from one to the other. It makes one step, and no time goes by unless it waits.
func TestAnotherClientIsLetInBeforeTheEndOfLingering(t *testing.T) {
	for _, mode := range []fencing.Mode{fencing.Read, fencing.Write} {
		t.Run(mode.String(), func(t *testing.T) {
			searchLocker(t, 1, func(s *scene) explore.World {
				p, q := s.process(rwlock.WithLinger(linger)), s.process()
				s.exchangeMessages(p, q)
				p.section(fencing.Write)
				return explore.World{
					Goroutines: []func(){func() { p.section(mode) }, q.isLetInAtOnce},
					Started:    []string{"rwlock.(*RWMutex).onContended"}, Patience: time.Minute,
				}
			})
		})
	}
}

// isLetInAtOnce acquires and releases the lock without an RWMutex, whose steps do not matter here.
func (u *user) isLetInAtOnce() {
	began := time.Now()
	lease, err := u.locker.Lock(u.t.Context(), "n")
	if err == nil {
		err = lease.Release(u.t.Context())
	}
	if waited := time.Since(began); err != nil || waited > 0 {
		u.fail("waits for %v: %v", waited, err)
	}
}

// A locker is closed while its lock lingers, is taken, or is handed on. No goroutine enters under a lease that Close
// has released, and no timer is left.
func TestCloseOfALingeringLock(t *testing.T) {
	searchLocker(t, 1, func(s *scene) explore.World {
		p := s.process(rwlock.WithLinger(linger))
		p.section(fencing.Write)
		return explore.World{
			Goroutines: []func(){func() { p.section(fencing.Write) }, p.close},
			Elapses:    []time.Duration{linger}, Started: atEnd,
		}
	})
}

func TestCloseBesideAHandOver(t *testing.T) {
	searchLocker(t, 1, func(s *scene) explore.World {
		p := s.process(rwlock.WithLinger(linger))
		held := p.enter(fencing.Write, p.mu.Lock)
		return explore.World{Goroutines: []func(){
			func() { p.leave(held) }, func() { p.section(fencing.Write) }, p.close,
		}}
	})
}

// A locker is closed between the registration of a hold and its request, which then leaves nothing on the server.
func TestCloseBesideALock(t *testing.T) {
	searchLocker(t, 2, func(s *scene) explore.World {
		p := s.process()
		p.section(fencing.Write)
		return explore.World{
			Goroutines: []func(){func() { p.section(fencing.Write) }, p.close},
			Within:     []string{"engine.(*guard).Lock", "engine.(*registry)", "engine.(*underWay)"},
		}
	})
}

// The process stands still until its lease has expired, and its timers are late.
func TestReadersLeaveAfterAPause(t *testing.T) {
	searchLocker(t, 1, func(s *scene) explore.World {
		p := s.process()
		first, second := p.enter(fencing.Read, p.mu.RLock), p.enter(fencing.Read, p.mu.RLock)
		return explore.World{
			Goroutines: []func(){func() { p.leave(first) }, func() { p.leave(second) }},
			Elapses:    []time.Duration{leaseTTL},
			Within:     append([]string{"engine.(*guard).Lock"}, ofRWMutex...),
			Started:    []string{"engine.(*hold).Fire"},
		}
	})
}

func searchLocker(t *testing.T, interruptions int, world func(*scene) explore.World) {
	began := time.Now()
	n := explore.Run(t, interruptions+*more, func(t *testing.T) explore.World {
		s := &scene{t: t, mini: testredis.NewMini(t), over: map[any]bool{}}
		w := world(s)
		w.Check = s.check
		if w.Within == nil {
			w.Within = ofRWMutex
		}
		synctest.Wait()
		return w
	})
	t.Logf("%d schedules with at most %d interruptions, in %v", n, interruptions+*more,
		time.Since(began).Round(time.Millisecond))
}

// scene is one lock, its clients, and the record of its holders.
type scene struct {
	t       *testing.T
	mini    *testredis.Mini
	users   []*user
	inside  []*holder
	over    map[any]bool // leases that had ended when their holder began to leave
	failure error
}

// user is an RWMutex of a locker.
type user struct {
	*scene
	locker *rwlock.Locker
	mu     *rwlock.RWMutex
	closed *bool // Close has begun
}

// holder is a goroutine that believes that it holds the lock, until its context ends or it begins to leave.
type holder struct {
	mode fencing.Mode
	ctx  context.Context
}

func (s *scene) process(options ...rwlock.MutexOption) *user {
	// Time that goes by during a release is no reason to give it up.
	timeout := rwlock.WithReleaseTimeout(time.Hour)
	locker := testkit.New(s.t, s.mini.Client(s.t), rwlock.WithTTL(leaseTTL), timeout)
	u := &user{scene: s, locker: locker, mu: locker.RWMutex("n", options...), closed: new(bool)}
	s.users = append(s.users, u)
	return u
}

// exchangeMessages has both clients listen to messages: each does from its first wait on.
func (s *scene) exchangeMessages(users ...*user) {
	ctx := s.t.Context()
	for i, u := range users {
		held, err := users[(i+1)%len(users)].locker.Lock(ctx, "another")
		require.NoError(s.t, err)
		done := make(chan error)
		go func() {
			lease, err := u.locker.Lock(ctx, "another")
			if err == nil {
				err = lease.Release(ctx)
			}
			done <- err
		}()
		synctest.Wait()
		require.NoError(s.t, held.Release(ctx))
		require.NoError(s.t, <-done)
	}
}

func (u *user) section(mode fencing.Mode) {
	lock := u.mu.RLock
	if mode == fencing.Write {
		lock = u.mu.Lock
	}
	u.leave(u.enter(mode, lock))
}

// enter returns nil if the locker was closed.
func (u *user) enter(mode fencing.Mode, lock func(context.Context) error) *holder {
	before, trusted := u.mu.Remote()
	err := lock(context.Background())
	if *u.closed && errors.Is(err, rwlock.ErrClosed) {
		return nil
	}
	if err != nil {
		u.fail("Lock for %s fails: %v", mode, err)
		return nil
	}
	hold, _ := u.mu.Remote()
	if hold != nil && (hold == before && !trusted || u.over[hold]) {
		u.fail("enters under a lease that has ended before")
	}
	h := &holder{mode, u.mu.Context(context.Background())}
	for _, other := range u.inside {
		if other.ctx.Err() == nil && h.ctx.Err() == nil && (mode == fencing.Write || other.mode == fencing.Write) {
			u.fail("%s enters beside %s", mode, other.mode)
		}
	}
	u.inside = append(u.inside, h)
	return h
}

func (u *user) leave(h *holder) {
	if h == nil {
		return
	}
	hold, trusted := u.mu.Remote()
	if !trusted && h.mode == fencing.Write {
		u.over[hold] = true
	}
	u.inside = slices.DeleteFunc(u.inside, func(other *holder) bool { return other == h })
	unlock := u.mu.RUnlock
	if h.mode == fencing.Write {
		unlock = u.mu.Unlock
	}
	err := unlock(context.Background())
	switch {
	case !trusted && !*u.closed && !errors.Is(err, rwlock.ErrLost):
		u.fail("leaves after a loss and is told %v", err)
	case trusted && err != nil && !errors.Is(err, rwlock.ErrLost):
		u.fail("leaves and is told %v", err)
	}
}

func (u *user) close() {
	*u.closed = true
	if err := u.locker.Close(); err != nil {
		u.fail("Close fails: %v", err)
	}
}

func (s *scene) fail(format string, args ...any) {
	s.failure = errors.Join(s.failure, fmt.Errorf(format, args...))
}

// check looks for what is left of the lock: at once in a locker that was closed, else after the time to linger.
func (s *scene) check() error {
	for _, u := range s.users {
		if *u.closed && u.mu.StopLingering() {
			s.fail("a timer outlives Close")
		}
	}
	time.Sleep(linger + time.Millisecond)
	synctest.Wait()
	for _, u := range s.users {
		if n := u.locker.Stats().Lingering; n > 0 {
			s.fail("%d locks linger for longer than their time", n)
		}
		if u.locker.InUse("n") {
			s.fail("an RWMutex is in use that no goroutine uses")
		}
		if !*u.closed && u.mu.StopLingering() {
			s.fail("a timer is left")
		}
	}
	redis := s.mini.Miniredis()
	for _, key := range redis.Keys() {
		_, part, ofLock := strings.Cut(key, "{n}")
		switch part {
		case "":
			fields, err := redis.HKeys(key)
			left := slices.DeleteFunc(fields, func(field string) bool { return strings.Contains("w d e b f m s c", field) })
			if ofLock && (err != nil || len(left) > 0) {
				s.fail("the lock is left with %q, %v", left, err)
			}
			if w := redis.HGet(key, "w"); ofLock && len(w) == 64 {
				s.fail("the lock is left to a writer: %s", w)
			}
		case ":h", ":q":
			s.fail("the lock is left with its holds or waiters in %q", key)
		}
	}
	return s.failure
}
