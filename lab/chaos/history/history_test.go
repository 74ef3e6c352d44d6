package history_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/lab/chaos/history"
)

func TestSaveAndLoad(t *testing.T) {
	h := &history.History{
		Run:      history.Run{Seed: 7, Masters: 3},
		Spans:    []history.Span{{Name: "n", Granted: 1, Token: 5}, {Name: "n", Granted: 2, Token: 6}},
		Failures: []history.Failure{{Name: "n", Cause: "contended"}},
		Faults:   []history.Fault{{Kind: "cut", From: 1, Until: 2, Workers: []int{0}}},
		Slow:     []history.Fault{{Kind: "slow-answers", From: 1, Until: 2, Masters: []int{0}}},
		Answers:  []history.Answer{{Name: "n", Call: "Renew", Got: "lost", Want: []string{"nil"}}},
		Accesses: []history.Access{{Name: "n", Guard: history.Fenced, Called: 1, Read: 3, Wrote: 4}},
	}
	path := filepath.Join(t.TempDir(), "run.json.gz")
	require.NoError(t, h.Save(path))
	loaded, err := history.Load(path)
	require.NoError(t, err)
	require.Equal(t, h, loaded)
}

// A worker that is killed leaves its last line unfinished.
func TestReadLeavesOutAnUnfinishedLine(t *testing.T) {
	var h history.History
	require.NoError(t, h.Read(strings.NewReader(`{"span":{"name":"a"}}`+"\n"+`{"span":{"na`)))
	require.Len(t, h.Spans, 1)
	require.ErrorContains(t, h.Read(strings.NewReader("{}\n{\n")), "line 2")
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
