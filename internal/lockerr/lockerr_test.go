package lockerr_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/errs"
	"github.com/seed74116694/fencelock/internal/lockerr"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Each error has its own type, what it wraps can be found in it, and its text names the lock, the master or the limit.
func TestErrors(t *testing.T) {
	short := &lockerr.Unreplicated{Need: 2, Got: 1, After: time.Second}
	silent := &lockerr.NoReply{After: 1500 * time.Millisecond}
	broken := &lockerr.Breaker{Who: "ann", Why: "wrong version"}
	for name, c := range map[string]struct {
		err  error
		in   []error
		text string
	}{
		"a counter that is ahead": {
			err: &lockerr.CounterAhead{By: 3 * time.Second},
			text: "its counter for this lock is 3s ahead of its clock, which was wrong once; " +
				"the next lease for writing that a quorum of the other masters grants sets it back",
		},
		"abstaining for a reason": {
			err: &lockerr.Abstaining{Err: io.EOF}, in: []error{io.EOF}, text: "has no vote: it EOF",
		},
		"abstaining for a time": {
			err:  &lockerr.Abstaining{For: time.Minute},
			text: "in quarantine for another 1m0s: it is new, or may have lost valid leases",
		},
		"abstaining without a marker": {
			err: &lockerr.Abstaining{}, text: "in quarantine until its marker is read, which is missing or has changed",
		},
		"of one master": {
			err: &lockerr.NodeFailure{Index: 1, Addr: "b:6379", Err: short}, in: []error{short},
			text: "b:6379: 1 of 2 required replicas confirmed it in 1s",
		},
		"of several masters": {
			err: lockerr.NodeFailures{{Addr: "a:6379", Err: silent}, {Index: 2, Addr: "c:6379", Err: io.EOF}},
			in:  []error{silent, io.EOF}, text: "a:6379: no reply in 1.5s; c:6379: EOF",
		},
		"of a call": {
			err: &lockerr.Error{
				Op: lockerr.OpRelease, Kind: lockerr.NoQuorum, Name: "n", Need: 2, Got: 1, Err: context.Canceled,
				Nodes: lockerr.NodeFailures{{Addr: "a:6379", Err: io.EOF}},
			},
			in: []error{context.Canceled}, text: "confirmed by 1 masters of 2 needed; a:6379: EOF",
		},
		"of a call that no master failed": {
			err:  &lockerr.Error{Op: lockerr.OpAcquire, Kind: lockerr.Contended, Name: "n", Need: 2, Got: 3},
			text: "confirmed by 3 masters of 2 needed",
		},
		"of a process that was late": {
			err: &lockerr.ProcessLate{By: 2345678 * time.Microsecond, Silence: silent}, in: []error{silent},
			text: "no reply in 1.5s; this process was busy or paused, its timers were up to 2.346s late",
		},
		"a loss": {
			err: &lockerr.Loss{Name: "orders", Token: 7, Reason: lockerr.Broken, Err: broken}, in: []error{broken},
			text: `lease of "orders" lost`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			require.EqualError(t, c.err, c.text)
			wrapped := errs.Join(fmt.Errorf("work: %w", c.err), io.ErrUnexpectedEOF)
			found := reflect.New(reflect.TypeOf(c.err))
			require.True(t, errors.As(wrapped, found.Interface()), "by its type")
			require.Equal(t, c.err, found.Elem().Interface())
			for _, cause := range c.in {
				require.ErrorIs(t, wrapped, cause)
			}
			require.NotErrorIs(t, wrapped, lockerr.ErrReleased)
			_, ok := lockerr.AsUnreplicated(wrapped)
			require.Equal(t, slices.Contains(c.in, error(short)), ok)
		})
	}
	require.NotErrorIs(t, lockerr.ErrClosed, lockerr.ErrReleased)
}

// A call is told why no quorum can carry it out: by what so many masters refuse that no quorum of the others is left.
func TestRefusal(t *testing.T) {
	foreign, missing := errors.New("WRONGTYPE Operation against a key"), errors.New("NOAUTH Authentication required.")
	passing, few := io.EOF, error(&lockerr.Unreplicated{Need: 1})
	for name, c := range map[string]struct {
		masters int
		errs    []error
		kind    lockerr.Kind
		forGood bool
	}{
		"none":                             {3, nil, lockerr.NoQuorum, false},
		"passing":                          {3, []error{passing, passing, passing}, lockerr.NoQuorum, false},
		"for good, by one":                 {1, []error{missing}, lockerr.NoQuorum, true},
		"for good, by a minority":          {3, []error{missing, passing, passing}, lockerr.NoQuorum, false},
		"for good, by a quorum":            {3, []error{missing, passing, missing}, lockerr.NoQuorum, true},
		"a foreign key":                    {1, []error{foreign}, lockerr.Conflict, true},
		"no token in the counter":          {1, []error{wire.ErrCounter}, lockerr.Conflict, true},
		"a foreign key of one, and login":  {3, []error{foreign, missing}, lockerr.Conflict, true},
		"a foreign key of one, others few": {3, []error{foreign, few}, lockerr.Conflict, false},
		"a foreign key of one of two":      {2, []error{foreign}, lockerr.Conflict, true},
		"too few replicas":                 {3, []error{few, few}, lockerr.Short, false},
		"too few replicas of one":          {3, []error{few, passing}, lockerr.NoQuorum, false},
		"too few replicas, and login":      {3, []error{few, missing, missing}, lockerr.Short, true},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*transport.Master
			for range c.masters {
				all = append(all, &transport.Master{})
			}
			var failures lockerr.NodeFailures
			for i, err := range c.errs {
				failures = append(failures, lockerr.NodeFailure{Index: i, Err: fmt.Errorf("in a call: %w", err)})
			}
			kind, forGood := failures.Refusal(all)
			require.Equal(t, c.kind, kind)
			require.Equal(t, c.forGood, forGood)
		})
	}
}

// No end without a verdict is taken for a verdict, and each reason of a loss is in the list of all.
func TestKindsAndReasonsAreDistinct(t *testing.T) {
	kinds := []lockerr.Kind{
		lockerr.Undecided, lockerr.Contended, lockerr.NoQuorum, lockerr.Conflict, lockerr.Short, lockerr.Absent,
		lockerr.OnlyReads, lockerr.Rival, lockerr.Closed, lockerr.InvalidMasters, lockerr.Gone,
	}
	slices.Sort(kinds)
	require.Len(t, slices.Compact(kinds), 11)
	reasons := slices.Clone(lockerr.Reasons[:])
	slices.Sort(reasons)
	require.Len(t, slices.Compact(reasons), len(lockerr.Reasons))
}
