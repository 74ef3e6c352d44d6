package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/seed74116694/fencelock/rwlock"
)

// progress reports the state of the run: on a terminal in one line that is redrawn, elsewhere in plain lines, one a
// second.
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
	line := p.line(time.Since(p.began), p.team.stats())
	if p.terminal {
		fmt.Fprintf(p.out, "\r\x1b[K%s", line)
		return
	}
	fmt.Fprintln(p.out, line)
}

// line leaves the last column free: a terminal may begin a new line there, and the old one would stay.
func (p *progress) line(now time.Duration, s rwlock.Stats) string {
	refused, violations := p.score.counts()
	state := fmt.Sprintf("waiting %d", s.Waiting)
	if violations > 0 {
		state = fmt.Sprintf("VIOLATIONS %d", violations)
	}
	line := fmt.Sprintf("%.1fs of %v  %s  acquired %d  lost %d  refused %d",
		now.Seconds(), p.length, state, s.Acquired, s.Lost.Total()+s.Expired, refused)
	return line[:min(len(line), columns-1)]
}
