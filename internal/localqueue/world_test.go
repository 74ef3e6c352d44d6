package localqueue_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/localqueue"
)

const (
	read  = fencing.Read
	write = fencing.Write
)

// world calls a queue as an RWMutex does, and keeps the same in a model of plain counts and a slice.
type world struct {
	t testing.TB
	q localqueue.Queue

	writer     bool
	readers    int
	converting *client
	paused     bool
	leader     *client
	waiting    []*client // in the order of arrival
	signalled  []*client // by the event that is under way

	came   time.Time         // the last client
	cursor localqueue.Cursor // of a loop that takes as long as the world
	shown  time.Time         // the last waiter that this loop was shown
}

// client is one waiter, or one converting holder.
type client struct {
	*localqueue.Waiter
	came     time.Time
	from     localqueue.Mode // of a conversion
	mayGoOn  bool            // of a conversion: no other holder is left
	admitted bool
}

func (w *world) newClient(mode localqueue.Mode) *client {
	w.came = w.came.Add(1)
	return &client{Waiter: localqueue.NewWaiter(mode, w.came), came: w.came}
}

// check compares the queue with the model. Every client receives its signal.
func (w *world) check(clients ...*client) {
	holders := w.readers
	if w.writer || w.converting != nil {
		holders++
	}
	require.False(w.t, w.writer && holders > 1, "a writer is the only holder")
	require.False(w.t, w.paused && holders > 0, "a holder entered a paused queue")
	if holders == 0 && !w.paused && len(w.waiting) > 0 {
		require.NotNil(w.t, w.leader, "a waiter was forgotten")
	}
	require.Equal(w.t, w.readers, w.q.Readers())
	require.Equal(w.t, holders, w.q.Holders())
	require.Equal(w.t, w.mayJoin(), w.q.MayJoin())
	require.Equal(w.t, w.readers > 0 && w.isUncontended(), w.q.IsOpen())
	require.Equal(w.t, holders == 0 && w.isUncontended(), w.q.IsIdle())
	require.Equal(w.t, w.converting != nil && w.converting.Mode() == write, w.q.IsUpgrading())
	mode, waits := w.q.Next()
	require.Equal(w.t, len(w.waiting) > 0, waits)
	if waits {
		require.Equal(w.t, w.waiting[0].Mode(), mode)
	}
	w.checkViews()
	for _, c := range append(clients, w.waiting...) {
		require.Equal(w.t, c.admitted, c.Admitted())
		if slices.Contains(w.signalled, c) {
			<-c.Turn()
		}
		require.Empty(w.t, c.Turn())
	}
	w.signalled = nil
	w.q.AllowJoin(true)
}

// checkViews compares what the queue shows: to a loop of its own, and to one that goes on by a waiter with each event.
func (w *world) checkViews() {
	var all []localqueue.View
	var at localqueue.Cursor
	for some := make([]localqueue.View, 0, 2); ; {
		if some = w.q.Waiters(&at, some); len(some) == 0 {
			break
		}
		all = append(all, some...)
	}
	require.Len(w.t, all, len(w.waiting))
	for i, c := range w.waiting {
		require.Equal(w.t, localqueue.View{Mode: c.Mode(), Since: c.came, Leads: c == w.leader}, all[i])
	}
	var next []localqueue.View
	for _, v := range all {
		if v.Since.After(w.shown) {
			next, w.shown = []localqueue.View{v}, v.Since
			break
		}
	}
	require.ElementsMatch(w.t, next, w.q.Waiters(&w.cursor, make([]localqueue.View, 0, 1)))
	leader, leads := w.q.Leader()
	require.Equal(w.t, w.leader != nil, leads)
	if leads {
		require.Equal(w.t, w.leader.came, leader.Since)
	}
	converting, converts := w.q.Converting()
	require.Equal(w.t, w.converting != nil, converts)
	if converts {
		require.Equal(w.t, w.converting.Mode(), converting.Mode)
	}
}

func (w *world) isUncontended() bool {
	return len(w.waiting) == 0 && w.leader == nil && w.converting == nil && !w.paused
}

// wake is what the queue has to do whenever the lock may have become free for the first waiter.
func (w *world) wake() {
	if len(w.waiting) == 0 || !w.mayLead() {
		return
	}
	w.leader = w.waiting[0]
	w.signalled = append(w.signalled, w.leader)
}

func (w *world) mayLead() bool {
	return w.leader == nil && !w.writer && w.readers == 0 && w.converting == nil && !w.paused
}

func (w *world) mayJoin() bool {
	return w.readers > 0 && w.converting == nil && len(w.waiting) > 0 && w.waiting[0].Mode() == read
}

func (w *world) hold(mode localqueue.Mode) {
	if mode == write {
		w.writer = true
	} else {
		w.readers++
	}
}

func (w *world) enqueue(mode localqueue.Mode) {
	c := w.newClient(mode)
	w.waiting = append(w.waiting, c)
	w.q.Enqueue(c.Waiter)
	if len(w.waiting) == 1 {
		w.wake()
	}
	w.check()
}

func (w *world) enter(mode localqueue.Mode) {
	if !w.q.IsIdle() && (mode == write || !w.q.IsOpen()) {
		return
	}
	w.q.Enter(mode)
	w.hold(mode)
	w.check()
}

func (w *world) tryLead(mode localqueue.Mode) {
	c := w.newClient(mode)
	may := len(w.waiting) == 0 && w.mayLead()
	require.Equal(w.t, may, w.q.TryLead(c.Waiter))
	if may {
		w.leader = c
	}
	w.check(c)
}

func (w *world) tryJoin() {
	may := w.readers > 0 && w.isUncontended()
	require.Equal(w.t, may, w.q.TryJoin())
	if may {
		w.readers++
	}
	w.check()
}

func (w *world) tryLeave() {
	may := w.readers > 1
	require.Equal(w.t, may, w.q.TryLeave())
	if may {
		w.readers--
	}
	w.check()
}

// leave is also called without a holder of that mode, as by a caller that unlocks once too often.
func (w *world) leave(mode localqueue.Mode) {
	held, last := w.depart(mode)
	gotHeld, gotLast := w.q.Leave(mode)
	if last && w.converting != nil {
		w.signalled = append(w.signalled, w.converting)
		w.converting.mayGoOn = true
		last = false
	}
	w.paused = w.paused || last
	require.Equal(w.t, held, gotHeld)
	require.Equal(w.t, last, gotLast)
	w.checkConverting()
}

func (w *world) depart(mode localqueue.Mode) (held, last bool) {
	if mode == write {
		held = w.writer
		w.writer = false
		return held, held
	}
	if w.readers > 0 {
		w.readers--
		return true, w.readers == 0
	}
	return false, false
}

// handOn ends the pause after the last holder has left.
func (w *world) handOn(admit bool) {
	if !w.paused {
		return
	}
	w.paused = false
	if !admit || len(w.waiting) == 0 {
		w.q.Resume()
		w.wake()
		w.check()
		return
	}
	w.q.AdmitFirst()
	first := w.waiting[0]
	w.signalled = append(w.signalled, first)
	w.check(w.admit(first)...)
}

// admit makes a waiter a holder, with the readers behind it that enter with it. It returns all of them.
func (w *world) admit(c *client) (all []*client) {
	w.waiting = slices.DeleteFunc(w.waiting, func(other *client) bool { return other == c })
	c.admitted = true
	if w.hold(c.Mode()); c.Mode() == read {
		all = w.joinReaders()
	}
	return append(all, c)
}

// joinReaders admits the readers that wait before the first writer, beside others, and returns them.
func (w *world) joinReaders() (all []*client) {
	for len(w.waiting) > 0 && w.waiting[0].Mode() == read {
		c := w.waiting[0]
		all, w.waiting, w.signalled = append(all, c), w.waiting[1:], append(w.signalled, c)
		c.admitted = true
		w.hold(read)
	}
	return all
}

// join lets waiting readers join the current ones.
func (w *world) join() {
	if !w.mayJoin() {
		return
	}
	w.q.JoinReaders()
	w.check(w.joinReaders()...)
}

// lead is what the leader does: it takes the lock, or fails.
func (w *world) lead(succeeds bool) {
	c := w.leader
	if c == nil {
		return
	}
	w.leader = nil
	if succeeds {
		w.q.AdmitLeader()
		w.check(w.admit(c)...)
		return
	}
	require.True(w.t, w.q.GiveUp(c.Waiter))
	w.waiting = slices.DeleteFunc(w.waiting, func(other *client) bool { return other == c })
	w.wake()
	w.check(c)
}

func (w *world) giveUp(i int) {
	if len(w.waiting) == 0 {
		return
	}
	i %= len(w.waiting)
	c := w.waiting[i]
	require.True(w.t, w.q.GiveUp(c.Waiter))
	w.waiting = slices.Delete(w.waiting, i, i+1)
	if w.leader == c {
		w.leader = nil
	}
	w.wake()
	w.check(c)
}

func (w *world) beginConversion(from localqueue.Mode) {
	to := read + write - from
	c := w.newClient(to)
	c.from = from
	held, alone := false, false
	if w.converting == nil {
		held, alone = w.depart(from)
	}
	gotHeld, gotAlone := w.q.BeginConversion(c.Waiter, from)
	require.Equal(w.t, held, gotHeld)
	require.Equal(w.t, held && alone, gotAlone)
	if held {
		w.converting = c
	}
	if alone {
		c.mayGoOn = true
		w.signalled = append(w.signalled, c)
	}
	require.Equal(w.t, held, w.q.IsConverting(c.Waiter))
	w.checkConverting()
}

func (w *world) endConversion(succeeds bool) {
	c := w.converting
	if c == nil {
		return
	}
	mode := c.from
	if succeeds && c.mayGoOn {
		mode = c.Mode()
	}
	w.q.EndConversion(mode)
	w.converting = nil
	w.hold(mode)
	w.check()
}

func (w *world) checkConverting() {
	if w.converting != nil {
		w.check(w.converting)
	} else {
		w.check()
	}
}

// calm lets every holder leave and every waiter have the lock.
func (w *world) calm() {
	for n := 0; !w.q.IsIdle(); n++ {
		require.Less(w.t, n, 1_000, "a waiter never has the lock")
		w.endConversion(false)
		w.lead(true)
		w.leave(read)
		w.leave(write)
		w.handOn(true)
	}
	require.Empty(w.t, w.waiting)
}

// FuzzQueue lets holders, waiters, single attempts and conversions come and go in any order. After each event the queue
// is in the state of the model, and no waiter has been forgotten. In the end every waiter gets the lock.
func FuzzQueue(f *testing.F) {
	source := rand.NewChaCha8([32]byte{1})
	for range 20 {
		seed := make([]byte, 200)
		_, _ = source.Read(seed)
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, events []byte) { play(t, events) })
}

// TestQueueAtRandom plays more runs than a fuzz target's seeds do.
func TestQueueAtRandom(t *testing.T) {
	source := rand.NewChaCha8([32]byte{2})
	events := make([]byte, 100)
	for range 500 {
		_, _ = source.Read(events)
		play(t, events)
	}
}

func play(t testing.TB, events []byte) {
	w := &world{t: t}
	for _, e := range events {
		w.step(int(e%16), int(e/16))
	}
	w.calm()
}

// step is one event.
func (w *world) step(event, n int) {
	mode := read
	if n%2 == 1 {
		mode = write
	}
	switch event {
	case 0, 1, 2:
		w.enqueue(mode)
	case 3:
		w.enter(mode)
	case 4:
		w.tryLead(mode)
	case 5:
		w.tryJoin()
	case 6:
		w.tryLeave()
	case 7, 8:
		w.leave(mode)
	case 9:
		w.handOn(n%4 > 0)
	case 10:
		w.lead(n%4 > 0)
	case 11:
		w.join()
	case 12:
		w.giveUp(n)
	case 13, 14:
		w.beginConversion(mode)
	case 15:
		w.endConversion(n%2 > 0)
	}
}

// An admitted waiter has the lock: it is too late to give up, whatever it has heard.
func TestAnAdmittedWaiterCannotGiveUp(t *testing.T) {
	var q localqueue.Queue
	q.Enter(write)
	w := localqueue.NewWaiter(write, time.Time{})
	q.Enqueue(w)
	q.Leave(write)
	q.AdmitFirst()
	require.False(t, q.GiveUp(w))
	require.Equal(t, 1, q.Holders())
}

// Readers join only while their caller allows it, and only while no waiter is ahead of them.
func TestAllowJoin(t *testing.T) {
	var q localqueue.Queue
	q.AllowJoin(true)
	require.False(t, q.TryJoin(), "there are no readers")
	q.Enter(read)
	require.False(t, q.TryJoin(), "not allowed so far")
	q.AllowJoin(true)
	require.True(t, q.TryJoin())
	q.AllowJoin(false)
	require.False(t, q.TryJoin())
	q.Enqueue(localqueue.NewWaiter(write, time.Time{}))
	q.AllowJoin(true)
	require.False(t, q.TryJoin(), "a writer waits")
	require.Equal(t, 2, q.Readers())
	require.True(t, q.TryLeave())
	require.False(t, q.TryLeave(), "the last reader takes the mutex")
}

// Whatever others do between the look at the count and the step, a change is made as if they had come before it or
// after it: no reader is forgotten, and none is told that it is not in.
func TestAChangeOfTheReaderCountIsOneStep(t *testing.T) {
	for name := range localqueue.ReaderChanges {
		for first := range localqueue.ReaderChanges {
			for second := range localqueue.ReaderChanges {
				for readers := range 4 {
					for _, open := range []bool{true, false} {
						isOneStep(t, name, []string{first, second}, readers, open)
					}
				}
			}
		}
	}
}

// isOneStep compares a change that is interrupted by others with the same change before them, and after them.
func isOneStep(t *testing.T, name string, others []string, readers int, open bool) {
	t.Helper()
	type outcome struct {
		changed bool
		state   int64
	}
	change := localqueue.ReaderChanges[name]
	interrupt := func(c *localqueue.ReaderCount) {
		for _, other := range others {
			localqueue.ReaderChanges[other](c)
		}
	}
	before, amid, after := localqueue.NewReaderCount(readers, open), localqueue.NewReaderCount(readers, open),
		localqueue.NewReaderCount(readers, open)
	one, two := change(before), amid.Interrupted(name, func() { interrupt(amid) })
	interrupt(before)
	interrupt(after)
	three := change(after)
	assert.Contains(t, []outcome{{one, before.State()}, {three, after.State()}}, outcome{two, amid.State()},
		"%s, with %v amid it, of %d readers, open: %v", name, others, readers, open)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
