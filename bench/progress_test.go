package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// progressOver returns what is shown in a number of seconds of fake time.
func progressOver(t *testing.T, d time.Duration, change func(*progress)) (shown string) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		p := newProgress(&out, 5*time.Second, nil, new(scoreboard))
		change(p)
		over, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			p.run(over)
		}()
		time.Sleep(d)
		close(over)
		<-ended
		shown = out.String()
	})
	return shown
}

func TestProgressInPlainLines(t *testing.T) {
	shown := progressOver(t, 3500*time.Millisecond, func(p *progress) { p.score.refusedStale() })
	lines := strings.Split(strings.TrimSpace(shown), "\n")
	require.Len(t, lines, 3)
	require.Equal(t, "1.0s of 5s  acquired 0  waiting 0  lost 0  stale writes refused 1", lines[0])
	require.NotContains(t, shown, "\x1b")
}

func TestProgressOnATerminal(t *testing.T) {
	shown := progressOver(t, 1050*time.Millisecond, func(p *progress) {
		p.terminal = true
		p.score.violated(exclusion, "planted")
	})
	require.NotContains(t, shown, "\n")
	require.Equal(t, 11, strings.Count(shown, "\r\x1b[K"), "ten times, and cleared at the end")
	require.True(t, strings.HasSuffix(shown, "\r\x1b[K"))
	require.Contains(t, shown, "VIOLATIONS 1")
}
