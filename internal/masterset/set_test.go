package masterset_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/masterset"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/scripts"
)

// embedded is a Set with servers, and what it calls.
type embedded struct {
	*masterset.Set
	minis   []*testredis.Mini
	masters []*transport.Master

	mu        sync.Mutex // of the callbacks; a test reads what follows when all goroutines wait
	processes []string   // by master: the last that was reported
	refused   []error
	votes     int
	log       []string
}

// embed makes a Set over three masters that no goroutine outlives.
func embed(t *testing.T, change func(i int, m *testredis.Mini)) *embedded {
	life, end := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	spawn := func(task func()) bool { tasks.Go(task); return true }
	t.Cleanup(func() { end(); tasks.Wait() })
	shared := &transport.Config{
		Listening: life, Life: life, Clock: clock.System(), BatchTimeout: 5 * time.Second, SlowCallAfter: time.Second,
		Channel: "c", Spawn: spawn,
		MarkerKey: "m", Quarantine: masterset.Quarantine(quarantine),
		OnMessage:         func(*transport.Master, *transport.Node, string) {},
		OnListen:          func(*transport.Master, *transport.Node) {},
		OnSubscribeFailed: func(*transport.Master, *transport.Node, error) {},
		OnMoved:           func(*transport.Master) {},
		OnSlowCall:        func(*transport.Master, *transport.Node, error) {},
		OnFirstAnswer:     func(*transport.Node) {},
		OnUnread:          func() {},
	}
	e := &embedded{processes: make([]string, 3)}
	for i := range 3 {
		mini := testredis.NewMini(t)
		mini.SetAddr(fmt.Sprintf("mini-%d:6379", i))
		mini.NewProcess()
		change(i, mini)
		client := expect.NoError(rueidis.NewClient(mini.Option())).In(t)
		t.Cleanup(client.Close)
		m := transport.NewMaster(shared, i, client)
		spawn(m.Run)
		e.minis, e.masters = append(e.minis, mini), append(e.masters, m)
	}
	e.Set = masterset.New(masterset.Config{
		Masters: e.masters, Key: "m", NodeTimeout: time.Second, LongestTTL: quarantine, QuorumTimeout: 5 * time.Second,
		Clock: clock.System(), Life: life, Spawn: spawn, NewID: func() string { return "S" },
		Warn:      func(text string, _ ...slog.Attr) { e.see(func() { e.log = append(e.log, text) }) },
		Info:      func(text string, _ ...slog.Attr) { e.see(func() { e.log = append(e.log, text) }) },
		OnProcess: func(i int, process string) { e.see(func() { e.processes[i] = process }) },
		OnRefused: func(err error) { e.see(func() { e.refused = append(e.refused, err) }) },
		OnVotes:   func() { e.see(func() { e.votes++ }) },
	})
	return e
}

const inQuarantine = "a master is new or may have lost leases, and is in quarantine"

func (e *embedded) see(what func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	what()
}

// passes returns how many scripts each server has run.
func (e *embedded) passes() (all []int) {
	for _, m := range e.minis {
		all = append(all, m.Calls("EVAL")+m.Calls("EVALSHA"))
	}
	return all
}

// All acquisitions share the first pass. The masters have their identities when it ends, and no later acquisition asks.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := embed(t, func(int, *testredis.Mini) {})
		require.Equal(t, []int{0, 0, 0}, e.passes(), "New sends nothing")
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				require.NoError(t, e.Check(t.Context()))
				for i, m := range e.masters {
					require.True(t, m.Identified(), "master %d", i)
				}
			})
		}
		callers.Wait()
		synctest.Wait()
		require.Equal(t, 1, e.votes)
		for _, process := range e.processes {
			require.Regexp(t, "^S [0-9a-f]{40}$", process)
		}
		before := e.passes()
		time.Sleep(time.Hour)
		synctest.Wait()
		require.NoError(t, e.Check(t.Context()))
		require.Equal(t, before, e.passes())
		require.Empty(t, e.refused)
		ended := slices.Repeat([]string{"the quarantine of a master is over, and it votes again"}, 3)
		require.Equal(t, append(slices.Repeat([]string{inQuarantine}, 3), ended...), e.log)
	})
}

// Servers begin later than the client, and one of them later still. Each gets its marker although nothing is acquired,
// and then the client leaves them alone. While they are away it asks less and less often.
func TestServersThatBeginLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := embed(t, func(int, *testredis.Mini) {})
		for _, m := range e.minis {
			m.Freeze()
		}
		inOrder := func() (all []int) {
			synctest.Wait()
			for i, m := range e.masters {
				if m.Identified() {
					all = append(all, i)
				}
			}
			return all
		}
		e.Begin()
		time.Sleep(time.Minute)
		require.Empty(t, inOrder())
		e.minis[0].Thaw()
		e.minis[2].Thaw()
		time.Sleep(time.Minute)
		require.Equal(t, []int{0, 2}, inOrder())
		before := e.passes()[0]
		const passes = 10
		time.Sleep(passes * masterset.MostBeginPause)
		require.InDelta(t, passes, e.passes()[0]-before, passes/2)
		e.minis[1].Thaw()
		time.Sleep(time.Minute)
		require.Equal(t, []int{0, 1, 2}, inOrder())
		asked := e.passes()
		time.Sleep(time.Hour)
		require.Equal(t, asked, e.passes(), "an idle client asks nothing")
	})
}

// What is examined before a set is founded says who founds it: the first lock, or a pass that has begun.
func TestExamineSaysWhoFoundsTheSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := embed(t, func(int, *testredis.Mini) {})
		var empty []masterset.Reading
		for i := range e.masters {
			empty = append(empty, e.Read(t.Context(), i))
		}
		says := func(text string) {
			for _, standing := range e.Examine(empty) {
				require.ErrorContains(t, standing.Err, "belongs to no set so far: "+text)
			}
		}
		says("the first lock founds it, and takes ")
		for _, m := range e.minis {
			m.Freeze()
		}
		e.Begin()
		says("founding it has begun, and takes ")
		for _, m := range e.minis {
			m.Thaw()
		}
		require.NoError(t, e.Check(t.Context()))
	})
}

// However many calls of Recheck come, the passes have a pause between them.
func TestRecheckPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := embed(t, func(int, *testredis.Mini) {})
		require.NoError(t, e.Check(t.Context()))
		synctest.Wait()
		before := e.passes()[0]
		for range 1000 {
			e.Recheck()
			time.Sleep(time.Millisecond)
		}
		require.InDelta(t, 20, e.passes()[0]-before, 2)
	})
}

// A pass may have asked a master before the reason for a Recheck arose.
func TestRecheckDuringAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := embed(t, func(int, *testredis.Mini) {})
		require.NoError(t, e.Check(t.Context()))
		time.Sleep(time.Second)
		before := e.passes()[0]
		for range 3 { // the first starts a pass, which has not ended
			e.Recheck()
		}
		time.Sleep(time.Second)
		require.Equal(t, before+2, e.passes()[0])
	})
}

// A master with another process has no vote until its term has begun, and the engine is told of both.
func TestRecheckAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := embed(t, func(int, *testredis.Mini) {})
		require.NoError(t, e.Check(t.Context()))
		synctest.Wait()
		earlier, votes := e.processes[1], e.votes
		e.minis[1].NewProcess()
		time.Sleep(time.Second)
		e.Recheck()
		time.Sleep(time.Second)
		synctest.Wait()
		require.NotEqual(t, earlier, e.processes[1])
		require.Greater(t, e.votes, votes)
		require.Equal(t, slices.Repeat([]string{inQuarantine}, 4), e.log, "at the first start, and now")
	})
}

// A set that must not be used fails Check, and the waiters. It is looked at again a second later.
func TestCheckRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := embed(t, func(i int, m *testredis.Mini) {
			if i < 2 {
				m.Miniredis().HSet("m", "layout", "1")
			}
		})
		for n := range 3 {
			err := e.Check(t.Context())
			require.ErrorIs(t, err, masterset.ErrUnusable)
			require.ErrorContains(t, err, "master 1 (mini-1:6379) keeps its locks in layout 1")
			synctest.Wait()
			require.Len(t, e.refused, n+1)
			require.ErrorContains(t, e.Defect(0), "layout 1")
			require.NoError(t, e.Defect(2))
			require.Len(t, e.log, 2)
			require.True(t, strings.HasPrefix(e.log[0], "master has no vote"))
			time.Sleep(time.Second)
		}
	})
}

// A master that is not in order is logged, and logged once more when it is in order again, not when it is silent.
func TestAMasterInOrderAgainIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := embed(t, func(int, *testredis.Mini) {})
		marked := e.minis[0].Miniredis()
		require.NoError(t, e.Check(t.Context()))
		time.Sleep(time.Hour) // the quarantines are over
		synctest.Wait()
		e.log = nil
		rules := marked.HGet("m", "rules")
		for range 2 {
			marked.HSet("m", "rules", "of another set")
			e.Recheck()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			require.ErrorContains(t, e.Defect(0), `was set up for "of another set"`)
			require.Equal(t, []string{"master has no vote"}, e.log)
			e.minis[0].Freeze()
			e.Recheck()
			time.Sleep(5 * time.Second)
			e.minis[0].Thaw()
			require.Equal(t, []string{"master has no vote"}, e.log, "its silence says nothing")
			marked.HSet("m", "rules", rules)
			e.Recheck()
			time.Sleep(5 * time.Second)
			synctest.Wait()
			require.NoError(t, e.Defect(0))
			require.Equal(t, []string{"master has no vote", "master is in order again"}, e.log)
			e.log = nil
		}
	})
}

// The requests of a pass, and what the masters are after it.
func TestBootstrap(t *testing.T) {
	for what, c := range map[string]struct {
		change func(m *masters) *masters
		asked  [][]string
		want   []string
		until  []string // of the markers: 0 if the master goes on voting
	}{
		"a first start": {
			func(*masters) *masters { return overServers("a b c", newServers(3)...) },
			[][]string{{"look", "look", "look"}, {"join", "", ""}, {"look", "join", "join"}, {"note", "note", "note"}},
			[]string{"member 0", "member 1", "member 2"},
			[]string{"3610000", "3610000", "3610000"},
		},
		"a first start, the smallest run id is the last": {
			func(*masters) *masters {
				s := newServers(3)
				return overServers("a b c", s[2], s[1], s[0])
			},
			[][]string{{"look", "look", "look"}, {"", "", "join"}, {"join", "join", "look"}, {"note", "note", "note"}},
			[]string{"member 0", "member 1", "member 2"},
			[]string{"3610000", "3610000", "3610000"},
		},
		"a first start, one is silent": {
			func(*masters) *masters {
				s := newServers(2)
				return overServers("a b c", s[0], nil, s[1])
			},
			[][]string{
				{"look", "look", "look"},
				{"join", "", ""},
				{"look", "", "join"},
				{"note", "", ""},
			},
			[]string{"member 0", "silent", "member 2"},
			[]string{"3610000", "", "3610000"},
		},
		"the founder is of other rules by then": {
			func(*masters) *masters {
				m := overServers("a b c", newServers(3)...)
				m.servers[0].founded = "other"
				return m
			},
			[][]string{{"look", "look", "look"}, {"join", "", ""}},
			[]string{`unfit: was set up for "other"`, "unmarked", "unmarked"},
			[]string{"3610000", "", ""},
		},
		"a lost marker": {
			func(m *masters) *masters { m.servers[1].marker = nil; return m },
			[][]string{
				{"look", "look", "look"},
				{"look", "join", "look"},
				{"note", "", "note"},
			},
			[]string{"member 0", "member 1", "member 2"},
			[]string{"0", "3610000", "0"},
		},
		"another process": {
			func(m *masters) *masters { m.servers[1].run = "X"; return m },
			[][]string{{"look", "look", "look"}, {"", "succeed", ""}, {"note", "", "note"}},
			[]string{"member 0", "member 1", "member 2"},
			[]string{"0", "3610000", "0"},
		},
		"a rival set": {
			func(m *masters) *masters { m.servers[1].marker["set"] = "T"; return m },
			[][]string{
				{"look", "look", "look"},
				{"look", "join", "look"},
				{"note", "", "note"},
			},
			[]string{"member 0", "member 1", "member 2"},
			[]string{"0", "3610000", "0"},
		},
		"the run id may be read now": {
			func(*masters) *masters {
				m := overServers("a b c", newServers(3)...)
				m.servers[1].run = ""
				_, _ = m.bootstrap()
				m.servers[1].run = "B"
				return m
			},
			[][]string{{"look", "look", "look"}, {"", "note", ""}, {"note", "", "note"}},
			[]string{"member 0", "member 1", "member 2"},
			[]string{"3610000", "3610000", "3610000"},
		},
		"a term that this client has seen, and the masters have lost": {
			func(m *masters) *masters {
				m.servers[2].run = "X"
				_, _ = m.bootstrap()
				m.servers[0].marker["terms"], m.servers[1].marker["terms"] = "1:A 1:B 1:C", "1:A 1:B 1:C"
				m.servers[2] = nil
				return m
			},
			[][]string{{"look", "look", "look"}, {"note", "note", ""}},
			[]string{"member 0", "member 1", "silent"},
			[]string{"0", "0", ""},
		},
		// It would take the seat from its master, at all clients that learn of the term.
		"another process with the marker of a member": {
			func(m *masters) *masters {
				m.servers[1].marker["seat"] = "0"
				return overServers("a a c", m.servers...)
			},
			[][]string{{"look", "look", "look"}},
			[]string{"member 0", "unfit: is the same server as master 0 (a)", "member 2"},
			[]string{"0", "0", "0"},
		},
		"another process, reached twice": {
			func(m *masters) *masters {
				m.servers[0].run = "X"
				return overServers("a a c", m.servers[0], m.servers[0], m.servers[2])
			},
			[][]string{{"look", "look", "look"}, {"succeed", "", ""}, {"", "", "note"}},
			[]string{"member 0", "unfit: is the same server as master 0 (a)", "member 2"},
			[]string{"3610000", "3610000", "0"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			m := c.change(newMasters(t))
			found, err := m.bootstrap()
			require.Equal(t, c.asked, m.asked)
			for i, is := range short(found) {
				require.Contains(t, is, c.want[i])
			}
			if found[0].State == "unfit" {
				require.ErrorIs(t, err, masterset.ErrUnusable)
			} else {
				require.NoError(t, err)
			}
			for i, s := range m.servers {
				if s != nil {
					require.Equal(t, c.until[i], s.marker["until"], "master %d", i)
				}
			}
		})
	}
}

// A server that answers alone is asked once.
func TestBootstrapOfSingle(t *testing.T) {
	m := overServers("a", &server{now: time.Hour})
	expect.NoError(m.bootstrap()).In(t)
	require.Equal(t, [][]string{{"single"}}, m.asked)
	m.servers[0].marker["layout"] = "1"
	_, err := m.bootstrap()
	require.ErrorIs(t, err, masterset.ErrUnusable)
}

// The server of these tests answers as marker.lua does.
func TestServerIsMarkerScript(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		mini.NewProcess()
		client := mini.Client(t)
		is := &server{}
		for range testredis.Few(1000, 3000) {
			is.now = time.Duration(time.Now().UnixNano()).Truncate(time.Microsecond)
			info := expect.NoError(client.Do(t.Context(), client.B().Info().Section("server").Build()).ToString()).In(t)
			_, is.run, _ = strings.Cut(strings.Fields(info)[0], "run_id:")
			args := []string{
				pick("look", "join", "note", "succeed", "note", "succeed"), "3", pick("rules", "other"),
				pick("S", "T"), pick("0", "1", "2"), "a b c", pick("2000", "10000"),
				pick("", "1:"+is.run, "2:a 1:"+is.run, "1:b 3:"+is.run+" 2:c", "7:"+is.run+" 1:b 2:b"), pick("", "", "S"),
			}
			call := client.B().Eval().Script(scripts.Source(scripts.Marker)).Numkeys(1).Key("m").Arg(args...).Build()
			reply := expect.NoError(client.Do(t.Context(), call).ToArray()).In(t)
			var fields []string
			for _, f := range reply {
				if n, err := f.ToInt64(); err == nil {
					fields = append(fields, strconv.FormatInt(n, 10))
					continue
				}
				text := expect.NoError(f.ToString()).In(t)
				fields = append(fields, text)
			}
			require.Equal(t, fields, is.call(args).Fields, "%q", args)
			switch random.IntN(20) {
			case 0:
				mini.NewProcess()
			case 1:
				mini.FlushAll()
				clear(is.marker)
			case 2:
				mini.Miniredis().HDel("m", "id")
				delete(is.marker, "id")
			case 3:
				time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
			}
		}
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
