package report_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/chaos/check"
	"github.com/seed74116694/fencelock/chaos/history"
	"github.com/seed74116694/fencelock/chaos/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWrite(t *testing.T) {
	const ms = 1_000_000
	h := &history.History{
		Run: history.Run{Seed: 77, Commit: "abc<1>", Masters: 1, TTL: ms, Began: 1, Healed: 90 * ms, Ended: 100 * ms},
		Spans: []history.Span{
			{Name: "n", Owner: "a", Process: 1, Write: true, Token: 5, Called: ms, Granted: 10 * ms, Last: 20 * ms},
			{
				Name: "n", Owner: "b", Process: 2, Write: true, Token: 6, Called: 9 * ms, Granted: 19 * ms, Last: 30 * ms,
				Lost: 40 * ms, Bounded: true, Reason: "expired",
			},
			{Name: "other", Owner: "c", Process: 3, Token: 7, Called: 50 * ms, Granted: 51 * ms, Last: 52 * ms},
		},
		Faults: []history.Fault{
			{Kind: "cut", Target: "workers [0]", From: 15 * ms, Until: 16 * ms},
			{Kind: history.Still, Target: "process 1", From: 15 * ms, Until: 16 * ms},
		},
		Accesses: []history.Access{{Name: "n", Guarded: true, Refused: true, Token: 5, Called: 25 * ms, Ended: 26 * ms}},
	}
	var page strings.Builder
	require.NoError(t, report.Write(&page, h, check.All(h, check.Busy)))
	whole, violation := strings.LastIndex(page.String(), "<svg"), strings.Index(page.String(), "<svg")
	require.NotEqual(t, whole, violation)
	for text, shown := range map[string]string{
		"1 violations": page.String(), "77": page.String(), "abc&lt;1&gt;": page.String(), "exclusion": page.String(),
		`class="lost"`: page.String()[whole:], `class="refused"`: page.String()[whole:], ">other<": page.String()[whole:],
		`class="wait"`: page.String()[violation:whole], ">002.0<": page.String()[violation:whole],
		"cut: workers [0], 1ms": page.String()[violation:whole],
	} {
		require.Contains(t, shown, text)
	}
	require.NotContains(t, page.String()[violation:whole], ">003.0<", "another lock is left out")
	for drawing := range strings.SplitSeq(page.String(), "<svg") {
		if body, _, ok := strings.Cut("<svg"+drawing, "</svg>"); ok {
			wellFormed(t, body+"</svg>")
		}
	}
}

// wellFormed requires that each element has its end.
func wellFormed(t *testing.T, text string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		require.NoError(t, err)
	}
}

// A run without anything is drawn too.
func TestWriteNothing(t *testing.T) {
	h := &history.History{}
	require.NoError(t, report.Write(io.Discard, h, check.All(h, check.Busy)))
}
