package testkit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// held is a grant that the test makes up.
type held struct {
	mode  rwlock.Mode
	token fencing.Token
	err   error
}

func (h *held) Mode() rwlock.Mode    { return h.mode }
func (h *held) Token() fencing.Token { return h.token }
func (h *held) Err() error           { return h.err }
func (h *held) Deadline() time.Time  { return time.Time{} }

// failures counts what an oracle finds.
type failures struct {
	testing.TB
	found []string
}

func (f *failures) Errorf(format string, args ...any) {
	f.found = append(f.found, fmt.Sprintf(format, args...))
}

func TestOracleNoticesWhatBreaksItsRules(t *testing.T) {
	read, write := rwlock.Read, rwlock.Write
	for name, c := range map[string]struct {
		first, second held
		ended         error // of the first, before the second is granted
		early         bool  // the second began before the first was granted
		wrong         bool
	}{
		"a writer after a writer":        {held{write, 1, nil}, held{write, 2, nil}, rwlock.ErrReleased, false, false},
		"readers together":               {held{read, 1, nil}, held{read, 1, nil}, nil, false, false},
		"a writer beside a writer":       {held{write, 1, nil}, held{write, 2, nil}, nil, false, true},
		"a reader beside a writer":       {held{write, 1, nil}, held{read, 2, nil}, nil, false, true},
		"a writer beside a reader":       {held{read, 1, nil}, held{write, 2, nil}, nil, false, true},
		"a lower token":                  {held{write, 2, nil}, held{write, 1, nil}, rwlock.ErrReleased, false, true},
		"a lower token of an early call": {held{write, 2, nil}, held{write, 1, nil}, rwlock.ErrReleased, true, true},
		"a token twice":                  {held{write, 2, nil}, held{read, 2, nil}, rwlock.ErrReleased, true, true},
	} {
		f := &failures{TB: t}
		oracle := testkit.NewOracle(f, name)
		first, second := oracle.Begin("n"), oracle.Begin("n")
		oracle.Acquired(first, &c.first)
		c.first.err = c.ended
		if !c.early {
			second = oracle.Begin("n")
		}
		oracle.Acquired(second, &c.second)
		require.Equal(t, c.wrong, len(f.found) > 0, "%s: %v", name, f.found)
		oracle.Sweep()
	}
}
