package localqueue_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/seed74116694/fencelock/internal/localqueue"
)

// Whatever others do between the look at the count and the step, a change is made as if they had come before it or
// after it: no reader is forgotten, and none is told that it is not in.
func TestAChangeOfTheReaderCountIsOneStep(t *testing.T) {
	for name := range localqueue.ReaderChanges {
		for first := range localqueue.ReaderChanges {
			for second := range localqueue.ReaderChanges {
				for readers := range 4 {
					for _, open := range []bool{true, false} {
						isOneStep(t, name, []string{first, second}, readers, open)
					}
				}
			}
		}
	}
}

// isOneStep compares a change that is interrupted by others with the same change before them, and after them.
func isOneStep(t *testing.T, name string, others []string, readers int, open bool) {
	t.Helper()
	type outcome struct {
		changed bool
		state   int64
	}
	change := localqueue.ReaderChanges[name]
	interrupt := func(c *localqueue.ReaderCount) {
		for _, other := range others {
			localqueue.ReaderChanges[other](c)
		}
	}
	before, amid, after := localqueue.NewReaderCount(readers, open), localqueue.NewReaderCount(readers, open),
		localqueue.NewReaderCount(readers, open)
	one, two := change(before), amid.Interrupted(name, func() { interrupt(amid) })
	interrupt(before)
	interrupt(after)
	three := change(after)
	assert.Contains(t, []outcome{{one, before.State()}, {three, after.State()}}, outcome{two, amid.State()},
		"%s, with %v amid it, of %d readers, open: %v", name, others, readers, open)
}
