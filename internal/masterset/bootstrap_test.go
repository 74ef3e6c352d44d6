package masterset_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/masterset"
)

// What follows from a look.
func TestConclude(t *testing.T) {
	for what, c := range map[string]struct{ masters, want string }{ // n: a new one, m: a member, s: silent, r: a replica
		"all are members":         {"mmm", "leave"},
		"members, one is silent":  {"mms", "leave"},
		"all are silent":          {"sss", "leave"},
		"all are new":             {"nnn", "found"},
		"new, one is silent":      {"nns", "found"},
		"new, two are silent":     {"nss", "leave"},
		"new, one is unfit":       {"nnr", "leave"},
		"one is new, one unfit":   {"nrs", "leave"},
		"one has lost its marker": {"mmn", "admit"},
		"two have lost theirs":    {"mnn", "admit"},
		"one member answers":      {"mns", "admit"},
	} {
		t.Run(what, func(t *testing.T) {
			m := newMasters(t)
			for i, kind := range c.masters {
				switch kind {
				case 'n':
					m.servers[i].marker = nil
				case 's':
					m.servers[i] = nil
				case 'r':
					m.servers[i].marker, m.servers[i].role = nil, "slave"
				}
			}
			require.Equal(t, c.want, m.Conclude(m.answers()...))
		})
	}
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
	_, err := m.bootstrap()
	require.NoError(t, err)
	require.Equal(t, [][]string{{"single"}}, m.asked)
	m.servers[0].marker["layout"] = "1"
	_, err = m.bootstrap()
	require.ErrorIs(t, err, masterset.ErrUnusable)
}

// A reply of another form is an error, and says nothing of the master.
func TestMalformedReply(t *testing.T) {
	m := newMasters(t)
	answers := m.answers()
	answers[1].Fields = answers[1].Fields[1:]
	found, err := m.Judge(answers...)
	require.NoError(t, err)
	require.Equal(t, []string{"member 0", "silent", "member 2"}, short(found))
}
