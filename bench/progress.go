package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress tells while the work goes on: on a terminal in one line that is drawn again and again, elsewhere in plain
// lines, one a second.
type progress struct {
	out      io.Writer
	terminal bool
	began    time.Time
	length   time.Duration
	team     team
	score    *scoreboard
}

func newProgress(out io.Writer, length time.Duration, t team, score *scoreboard) *progress {
	return &progress{out: out, terminal: isTerminal(out), began: time.Now(), length: length, team: t, score: score}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// run ends when over is closed.
func (p *progress) run(over <-chan struct{}) {
	every := time.Second
	if p.terminal {
		every = 100 * time.Millisecond
		defer fmt.Fprint(p.out, "\r\x1b[K")
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			p.show()
		case <-over:
			return
		}
	}
}

func (p *progress) show() {
	now, s := time.Since(p.began), p.team.stats()
	refused, violations := p.score.counts()
	line := fmt.Sprintf("%4.1fs of %v  acquired %d  waiting %d  lost %d  stale writes refused %d",
		now.Seconds(), p.length, s.Acquired, s.Waiting, s.Lost, refused)
	if violations > 0 {
		line += fmt.Sprintf("  VIOLATIONS %d", violations)
	}
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
		return
	}
	fmt.Fprintln(p.out, line)
}
