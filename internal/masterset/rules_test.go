package masterset_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/masterset"
	"github.com/seed74116694/fencelock/internal/test/expect"
)

// masters are the servers behind one client's list.
type masters struct {
	*masterset.Client
	servers []*server
	asked   [][]string // the purposes of each round; "" for no request
}

// overServers returns a new client of these servers; nil is a server that does not answer.
func overServers(list string, servers ...*server) *masters {
	return &masters{Client: masterset.NewClient(quarantine, names(list)...), servers: servers}
}

// newServers returns servers with the run ids A, B and so on.
func newServers(n int) (all []*server) {
	for i := range n {
		all = append(all, &server{run: string(rune('A' + i)), now: time.Hour})
	}
	return all
}

// newMasters returns a set that was founded long ago at a, b and c.
func newMasters(t *testing.T) *masters {
	m := overServers("a b c", newServers(3)...)
	require.Equal(t, []string{"member 0", "member 1", "member 2"}, short(expect.NoError(m.bootstrap()).In(t)))
	for _, s := range m.servers {
		s.marker["until"] = "0"
		s.identify()
	}
	return m
}

// bootstrap makes a pass in which every request is answered at once.
func (m *masters) bootstrap() ([]masterset.Finding, error) {
	m.asked = nil
	ask := func(requests [][]string) []masterset.Answer {
		answers, purposes := make([]masterset.Answer, len(requests)), make([]string, len(requests))
		for i, args := range requests {
			answers[i].Err = errSilent
			if args == nil {
				continue
			}
			if purposes[i] = args[0]; m.servers[i] != nil {
				answers[i] = m.servers[i].call(args)
			}
		}
		m.asked = append(m.asked, purposes)
		return answers
	}
	return m.Bootstrap(ask, func() string { return "S" })
}

// judge has the rules look at the servers as they are.
func (m *masters) judge() ([]masterset.Finding, error) { return m.Judge(m.answers()...) }

func (m *masters) answers() (all []masterset.Answer) {
	for _, s := range m.servers {
		if s == nil {
			all = append(all, masterset.Answer{Err: errSilent})
		} else {
			all = append(all, s.look())
		}
	}
	return all
}

// short returns for each master its state, and its seat or its defect.
func short(found []masterset.Finding) (all []string) {
	for _, f := range found {
		what := f.State
		switch {
		case f.Defect != "":
			what += ": " + f.Defect
		case f.Seat >= 0:
			what += " " + strconv.Itoa(f.Seat)
		}
		all = append(all, what)
	}
	return all
}

// Defects of masters.
const (
	replica  = "unfit: is a replica: it would follow another's decisions"
	otherSet = "unfit: belongs to another set of masters than most of the others; " +
		"where saves of before a replacement came back, delete PREFIX:master on all masters"
	noMember = "unfit: has no marker, and the set that the others belong to has its masters at [a b c]"
	renamed  = "unfit: is another server than the one at c whose marker it has, and is not reached by that name"
)

// What each master is to the set, by its marker and by what the others know.
func TestJudge(t *testing.T) {
	other := func(m *masters, list string) *masters { return overServers(list, m.servers...) } // without a history
	for what, c := range map[string]struct {
		change func(m *masters) *masters
		want   []string
		err    string
	}{
		"in order": {func(m *masters) *masters { return m }, []string{"member 0", "member 1", "member 2"}, ""},
		"another order of the list": {func(m *masters) *masters {
			return overServers("c a b", m.servers[2], m.servers[0], m.servers[1])
		}, []string{"member 2", "member 0", "member 1"}, ""},
		"silent": {func(m *masters) *masters {
			m.servers[1] = nil
			return m
		}, []string{"member 0", "silent", "member 2"}, ""},
		"a replica": {func(m *masters) *masters {
			m.servers[1].role = "slave"
			return m
		}, []string{"member 0", replica, "member 2"}, ""},
		"a replica, the others are silent": {func(m *masters) *masters {
			m.servers[1].role = "slave"
			m.servers[0], m.servers[2] = nil, nil
			return m
		}, []string{"silent", replica, "silent"}, ""},
		"a replica, and one that is silent and may know the set": {func(m *masters) *masters {
			m.servers[1].role = "slave"
			m.servers[0].marker, m.servers[2] = nil, nil
			return other(m, "a b c")
		}, []string{"unmarked", replica, "silent"}, ""},
		"a cluster": {func(m *masters) *masters {
			m.servers[1].cluster = true
			return m
		}, []string{"member 0", "unfit: is a node of a cluster: it holds only some of the names", "member 2"}, ""},
		"another layout": {func(m *masters) *masters {
			m.servers[1].marker["layout"] = "1"
			return m
		}, []string{"member 0", "unfit: keeps its locks in layout 1, this client in layout 3", "member 2"}, ""},
		"another set": {func(m *masters) *masters {
			m.servers[1].marker["set"] = "T"
			m.servers[1].marker["seats"] = "a b d"
			return m
		}, []string{"member 0", otherSet, "member 2"}, ""},
		"malformed seat": {func(m *masters) *masters {
			m.servers[1].marker["seat"] = "3"
			return m
		}, []string{"member 0", `unfit: has a malformed marker: seat "3" of 3`, "member 2"}, ""},
		"seat of another": {func(m *masters) *masters {
			m.servers[1].marker["seat"] = "0"
			return other(m, "a a c")
		}, []string{"member 0", "unfit: is the same server as master 0 (a)", "member 2"}, ""},
		"one server, two addresses": {func(m *masters) *masters {
			return overServers("a b b2", m.servers[0], m.servers[1], m.servers[1])
		}, []string{"member 0", "member 1", "unfit: is the same server as master 1 (b)"}, ""},
		"one new server, two addresses": {func(*masters) *masters {
			s := newServers(2)
			return overServers("a b b2", s[0], s[1], s[1])
		}, []string{"unmarked", "unmarked", "unfit: is the same server as master 1 (b)"}, "master 2 (b2) is the same server"},
		"two without a run id": {func(*masters) *masters {
			s := newServers(3)
			s[0].run, s[1].run = "", ""
			return overServers("a b c", s...)
		}, []string{"unmarked", "unmarked", "unmarked"}, ""},
		"two unfit": {func(m *masters) *masters {
			m.servers[0].role, m.servers[2].role = "slave", "slave"
			return m
		}, []string{replica, "member 1", replica}, "master 2 (c) is a replica"},

		"a restart": {func(m *masters) *masters {
			m.servers[2].run = "X"
			return other(m, "a b c")
		}, []string{"member 0", "member 1", "replaced 2"}, ""},
		"a restart, by a name that has led there": {func(m *masters) *masters {
			at := overServers("a b c2", m.servers...)
			_, _ = at.bootstrap()
			m.servers[2].run = "X"
			return at
		}, []string{"member 0", "member 1", "replaced 2"}, ""},
		"a copy under another name": {func(m *masters) *masters {
			m.servers[2].run = "X"
			return other(m, "a b d")
		}, []string{"member 0", "member 1", renamed}, ""},
		"the process itself, restored, under another name": {func(m *masters) *masters {
			m.servers[2].marker["run"] = "X"
			return other(m, "a b d")
		}, []string{"member 0", "member 1", "replaced 2"}, ""},
		"a later term, known to another": {func(m *masters) *masters {
			m.servers[0].marker["terms"] = "1:A 1:B 2:X"
			return other(m, "a b c")
		}, []string{"member 0", "member 1", "replaced 2"}, ""},
		"the same term, by another process": {func(m *masters) *masters {
			m.servers[0].marker["terms"] = "1:A 1:B 1:X"
			return other(m, "a b c")
		}, []string{"member 0", "member 1", "replaced 2"}, ""},
		"a later term, known to the client": {func(m *masters) *masters {
			m.servers[2].marker["terms"], m.servers[2].marker["run"], m.servers[2].run = "1:A 1:B 2:X", "X", "X"
			_, _ = m.bootstrap()
			for i := range 2 {
				m.servers[i].marker["terms"] = "1:A 1:B 1:C"
			}
			m.servers[2].marker["terms"], m.servers[2].marker["run"], m.servers[2].run = "1:A 1:B 1:C", "C", "C"
			return m
		}, []string{"member 0", "member 1", "replaced 2"}, ""},
		"the run id is not to be read": {func(m *masters) *masters {
			m.servers[2].run = ""
			return m
		}, []string{"member 0", "member 1", "member 2"}, ""},
		"the run id is not to be read, and the id was removed": {func(m *masters) *masters {
			m.servers[2].run = ""
			delete(m.servers[2].marker, "id")
			return m
		}, []string{"member 0", "member 1", "replaced 2"}, ""},

		"the marker is lost": {func(m *masters) *masters {
			m.servers[2].marker = nil
			return other(m, "a b c")
		}, []string{"member 0", "member 1", "unmarked 2"}, ""},
		"the marker is lost, another order": {func(m *masters) *masters {
			m.servers[2].marker = nil
			return overServers("c a b", m.servers[2], m.servers[0], m.servers[1])
		}, []string{"unmarked 2", "member 0", "member 1"}, ""},
		"the marker is lost, a name that has led there": {func(m *masters) *masters {
			at := overServers("a b c2", m.servers...)
			_, _ = at.bootstrap()
			m.servers[2].marker, m.servers[2].run = nil, "X"
			return at
		}, []string{"member 0", "member 1", "unmarked 2"}, ""},
		"the marker is lost, the process is known": {func(m *masters) *masters {
			m.servers[2].marker = nil
			for i := range 2 {
				m.servers[i].marker["terms"] = "1:A 1:B 1:C"
			}
			return other(m, "a b d")
		}, []string{"member 0", "member 1", "unmarked 2"}, ""},
		"the marker is lost, the set may be that of before": {func(m *masters) *masters {
			m.servers[1].marker, m.servers[2] = nil, nil
			return other(m, "a b d")
		}, []string{"member 0", noMember, "silent"}, ""},
		"the marker is lost, the set may be that of before, the process is known": {func(m *masters) *masters {
			m.servers[0].marker["terms"] = "1:A 1:B 1:C"
			m.servers[1].marker, m.servers[2] = nil, nil
			return other(m, "a b d")
		}, []string{"member 0", noMember, "silent"}, ""},
		"the marker is lost, the master was seen in the set": {func(m *masters) *masters {
			at := overServers("a b d", m.servers...)
			_, _ = at.bootstrap()
			m.servers[1].marker, at.servers = nil, []*server{m.servers[0], m.servers[1], nil}
			return at
		}, []string{"member 0", "unmarked 1", "silent"}, ""},
		"a server that is no member": {func(m *masters) *masters {
			m.servers[2] = newServers(4)[3]
			return other(m, "a b d")
		}, []string{"member 0", "member 1", noMember}, ""},
		"the seat of the lost marker is taken": {func(m *masters) *masters {
			return overServers("c2 a c", m.servers[2], m.servers[0], newServers(4)[3])
		}, []string{"member 2", "member 0", noMember}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			found, err := c.change(newMasters(t)).judge()
			require.Equal(t, c.want, short(found))
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, masterset.ErrUnusable)
			require.ErrorContains(t, err, c.err)
		})
	}
}

// A master that was away during a replacement comes back with the marker of the old set. While the rest is silent, the
// seats that a client knows of the new set count for nothing: it gives none of them to an emptied master, and begins no
// term there for a copy of the master that was replaced. Either master would need a repair too.
func TestASeatOfAnotherSetIsNone(t *testing.T) {
	mark := func(s *server, set, seats string, seat int) *server {
		s.call([]string{
			"join", "3", "3 masters, quorum 2, longest TTL 10s", set, strconv.Itoa(seat), seats, "10000", "", "",
		})
		return s
	}
	for what, c := range map[string]struct {
		third  func(s *server)
		defect string
	}{
		"an emptied master": {func(*server) {}, noMember},
		"a copy": {func(s *server) {
			mark(s, "OLD", "a b c", 2)
			s.run = "X"
		}, renamed},
	} {
		t.Run(what, func(t *testing.T) {
			servers := newServers(5)
			for seat, s := range servers[:3] {
				mark(s, "NEW", "a b x", seat)
			}
			m := overServers("a b x", servers[:3]...)
			expect.NoError(m.bootstrap()).In(t)
			c.third(servers[4])
			m.servers = []*server{mark(servers[3], "OLD", "a b c", 0), nil, servers[4]}
			require.Equal(t, []string{"member 0", "silent", c.defect}, short(expect.NoError(m.judge()).In(t)))
		})
	}
}

// Most masters come back from saves of before replacements. The error says what to do, and that is enough.
func TestACureForSavesOfBeforeReplacements(t *testing.T) {
	m := newMasters(t)
	for i, old := range []string{"1", "2"} {
		s := m.servers[i]
		s.marker["set"], s.marker["seats"], s.marker["run"] = "OLD-"+old, "a b x"+old, "X"
	}
	found, err := m.bootstrap()
	require.ErrorIs(t, err, masterset.ErrUnusable)
	require.ErrorContains(t, err, "delete PREFIX:master on all masters")
	require.Equal(t, []string{otherSet, otherSet, "member 2"}, short(found))
	for _, s := range m.servers {
		clear(s.marker)
	}
	require.Equal(t, []string{"member 0", "member 1", "member 2"}, short(expect.NoError(m.bootstrap()).In(t)))
	for _, s := range m.servers {
		require.Equal(t, "3610000", s.marker["until"], "they abstain first")
	}
}

// Of two sets over the same masters the larger one stays, then the client's own, then the one with the smaller id. The
// masters of another set rejoin, if that set has the same masters.
func TestCommonSet(t *testing.T) {
	for what, c := range map[string]struct {
		sets, seats []string // of the masters
		want        []string
		rivals      []string
	}{
		"larger": {
			[]string{"T", "S", "T"},
			[]string{"a b c", "a b c", "a b c"},
			[]string{"member 0", "unmarked 1", "member 2"},
			[]string{"", "S", ""},
		},
		"smaller id": {
			[]string{"T", "S", ""},
			[]string{"a b c", "a b c", ""},
			[]string{"unmarked 0", "member 1", "unmarked 2"},
			[]string{"T", "", ""},
		},
		"another order": {
			[]string{"S", "S", "T"},
			[]string{"a b c", "a b c", "c a b"},
			[]string{"member 0", "member 1", "unmarked 2"},
			[]string{"", "", "T"},
		},
		"own": {
			[]string{"T", "S", ""},
			[]string{"a b c", "a b d", ""},
			[]string{"member 0", otherSet, "unmarked 2"},
			[]string{"", "", ""},
		},
		"own, later": {
			[]string{"S", "T", ""},
			[]string{"a b d", "a b c", ""},
			[]string{otherSet, "member 1", "unmarked 2"},
			[]string{"", "", ""},
		},
		"larger, other": {
			[]string{"S", "S", "T"},
			[]string{"a b d", "a b d", "a b c"},
			[]string{"member 0", "member 1", "unfit: has no marker"},
			[]string{"", "", "T"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			servers := newServers(3)
			for i, set := range c.sets {
				if set != "" {
					servers[i].call([]string{
						"join", "3", "3 masters, quorum 2, longest TTL 10s", set, strconv.Itoa(i), c.seats[i],
						"10000", "", "",
					})
				}
			}
			for range 20 { // in any order of a map
				found := expect.NoError(overServers("a b c", servers...).judge()).In(t)
				for i, f := range found {
					require.Equal(t, c.rivals[i], f.Rival)
					require.True(t, strings.HasPrefix(short(found)[i], c.want[i]), "%v", short(found))
				}
			}
		})
	}
}

// A server of several masters, a node of a Cluster and another layout are no single master.
func TestValidateAlone(t *testing.T) {
	alone := masterset.NewClient(quarantine, name("a"))
	member := newMasters(t).servers[0]
	for what, c := range map[string]struct {
		answer masterset.Answer
		err    string
	}{
		"new":            {(&server{}).call([]string{"single", "3"}), ""},
		"silent":         {masterset.Answer{Err: errSilent}, ""},
		"another layout": {(&server{}).call([]string{"single", "1"}), "master 0 (a) keeps its locks in layout 1"},
		"a member":       {member.call([]string{"single", "3"}), "is one of 3 masters, quorum 2, longest TTL 10s"},
		"a Cluster":      {(&server{cluster: true}).look(), "master 0 (a): "},
	} {
		t.Run(what, func(t *testing.T) {
			err := alone.ValidateAlone(c.answer)
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, masterset.ErrUnusable)
			require.ErrorContains(t, err, c.err)
		})
	}
}

func TestReplaced(t *testing.T) {
	for what, c := range map[string]struct {
		own, last string
		want      bool
	}{
		"nothing is known":          {"1:a", "", false},
		"the same":                  {"1:a", "1:a", false},
		"an earlier one":            {"2:a", "1:b", false},
		"a later one":               {"1:a", "2:b", true},
		"a later one, same process": {"1:a", "2:a", true},
		"the same term, another":    {"1:a", "1:b", true},
		"the same term, unknown":    {"1:a", "1:", false},
		"unknown, the same term":    {"1:", "1:a", false},
	} {
		t.Run(what, func(t *testing.T) { require.Equal(t, c.want, masterset.Replaced(c.own, c.last)) })
	}
}

// FuzzTerms merges lists that masters may store: the result has the later term of each seat, and misses none of either.
func FuzzTerms(f *testing.F) {
	f.Add("4:a 1:b", "3:c 2:d 1:e")
	f.Add("1:a", "")
	f.Add("0: 2:b", "1:a 2:c")
	f.Add("", "0:")
	f.Add("1:a:b 18446744073709551615:", "x")
	f.Fuzz(func(t *testing.T, mine, theirs string) {
		merged, misses := masterset.MergeTerms(mine, theirs)
		for _, learnt := range []string{mine, theirs} {
			again, misses := masterset.MergeTerms(merged, learnt)
			require.Equal(t, merged, again)
			require.False(t, misses)
		}
		before, _ := masterset.MergeTerms(mine, "")
		if misses {
			require.NotEqual(t, before, merged)
		}
		require.False(t, strings.Contains(before, "  "))
	})
}
