package engine

import (
	"fmt"
	"os"
)

func (a *acquisition) debug(why string) {
	if os.Getenv("FLDEBUG") == "" {
		return
	}
	l := a.lease
	s := fmt.Sprintf("%v %s %s %v %s waiting=%v asks=%d", l.e.clock.Now().Mono, why, l.name, l.mode, l.hold[20:], a.waiting, a.asks)
	for i := range l.ballot.Masters() {
		s += fmt.Sprintf("\n    %d %+v", i, *l.ballot.Vote(i))
	}
	fmt.Fprintln(os.Stderr, s)
}
