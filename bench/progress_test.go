package main

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
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
	require.Equal(t, "1.0s of 5s  waiting 0  acquired 0  lost 0  refused 1", lines[0])
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

func TestProgressFitsANarrowTerminal(t *testing.T) {
	p := newProgress(nil, 100*time.Hour, nil, new(scoreboard))
	busy := rwlock.Stats{Held: 999, Waiting: 999, Acquired: 123456789, Lost: 1234567}
	require.Less(t, len(p.line(99*time.Hour, busy)), columns, "the last column is left free")
	p.score.violated(exclusion, "planted")
	line := p.line(99*time.Hour, busy)
	require.Less(t, len(line), columns)
	require.Contains(t, line, "VIOLATIONS 1", "what matters most is not cut off")
}
