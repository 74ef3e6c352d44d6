package judge_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/judge"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// held is a grant whose holder believes what the test wants.
type held struct {
	mode  rwlock.Mode
	token fencing.Token
	err   error
}

func (h *held) Mode() rwlock.Mode    { return h.mode }
func (h *held) Token() fencing.Token { return h.token }
func (h *held) Err() error           { return h.err }

func reads(token fencing.Token) *held { return &held{rwlock.Read, token, nil} }

func writes(token fencing.Token) *held { return &held{rwlock.Write, token, nil} }

// watch lets a judge see what a test plants, and returns what it has found.
func watch(plant func(j *judge.Judge)) (found []judge.Rule) {
	j := judge.New(func(v judge.Violation) { found = append(found, v.Rule) })
	plant(j)
	return found
}

func TestTwoGrants(t *testing.T) {
	released, lost := rwlock.ErrReleased, rwlock.ErrLost
	const exclusion, order = judge.Exclusion, judge.Order
	for name, c := range map[string]struct {
		first, second *held
		ended         error // of the first, before the second is granted
		early         bool  // the second began before the first was granted
		lost          bool  // the second is lost when it is entered
		found         []judge.Rule
	}{
		"a writer after a writer":               {writes(1), writes(2), released, false, false, nil},
		"a writer after a lost one":             {writes(1), writes(2), lost, false, false, nil},
		"readers together":                      {reads(1), reads(1), nil, false, false, nil},
		"readers in no order":                   {reads(2), reads(1), nil, true, false, nil},
		"a lost one that comes late":            {writes(5), writes(4), released, true, true, nil},
		"a writer beside a writer":              {writes(1), writes(2), nil, false, false, []judge.Rule{exclusion}},
		"a reader beside a writer":              {writes(1), reads(2), nil, false, false, []judge.Rule{exclusion}},
		"a writer beside a reader":              {reads(1), writes(2), nil, false, false, []judge.Rule{exclusion}},
		"a lower token":                         {writes(2), writes(1), released, false, false, []judge.Rule{order, order}},
		"a writer below a reader":               {reads(2), writes(1), released, false, false, []judge.Rule{order, order}},
		"a reader below a writer":               {writes(2), reads(1), released, false, false, []judge.Rule{order, order}},
		"a lower token of an early call":        {writes(2), writes(1), released, true, false, []judge.Rule{order}},
		"a writer below a reader, lost at once": {reads(5), writes(4), lost, false, true, []judge.Rule{order}},
		"a reader below a writer, lost at once": {writes(5), reads(4), lost, false, true, []judge.Rule{order}},
		"a token twice":                         {writes(2), reads(2), lost, true, true, []judge.Rule{order}},
		"a token twice, early":                  {writes(2), reads(2), released, true, false, []judge.Rule{order, order}},
	} {
		require.Equal(t, c.found, watch(func(j *judge.Judge) {
			first, second := j.Begin("n"), j.Begin("n")
			j.Acquired(first, c.first)
			c.first.err = c.ended
			if !c.early {
				second = j.Begin("n")
			}
			if c.lost {
				c.second.err = lost
			}
			j.Acquired(second, c.second)
		}), name)
	}
}

func TestOtherNamesAndAmnesia(t *testing.T) {
	require.Empty(t, watch(func(j *judge.Judge) {
		j.Acquired(j.Begin("a"), writes(12))
		j.Acquired(j.Begin("b"), writes(3))
		j.Amnesia()
		j.Acquired(j.Begin("a"), writes(13))
		j.Sweep()
	}))
}

// Two grants that become trusted after both were entered, such as two converted ones, are found by a sweep.
func TestSweep(t *testing.T) {
	require.Equal(t, []judge.Rule{judge.Exclusion, judge.Exclusion}, watch(func(j *judge.Judge) {
		one, other := reads(1), reads(2)
		j.Acquired(j.Begin("n"), one)
		j.Acquired(j.Begin("n"), other)
		one.mode = rwlock.Write
		j.Sweep()
	}))
}

func TestASectionEndsBeforeItsGrant(t *testing.T) {
	require.Empty(t, watch(func(j *judge.Judge) {
		s := &judge.Section{Grant: writes(1)}
		j.Acquired(j.Begin("n"), s)
		s.Leave()
		j.Acquired(j.Begin("n"), writes(2))
		require.Equal(t, "2 leases, 0 of them lost", j.Summary())
	}))
}
