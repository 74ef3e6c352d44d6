package redlock_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// A contender that does not know whether it has given way neither counts that grant nor stays in the others' way,
// whether the answer got lost with its connection, did not come, or the request ran twice.
func TestSplitVotesWithYieldsOfUnknownOutcome(t *testing.T) {
	type match = func(cmd []string) bool
	for what, strike := range map[string]func(*testredis.Link, match){
		"answer lost":     func(l *testredis.Link, yield match) { l.DropNextReply(yield) },
		"answer withheld": func(l *testredis.Link, yield match) { l.MuteNextReply(yield) },
		"request lost":    func(l *testredis.Link, yield match) { l.DropNextCommand(yield) },
		"answer late":     func(l *testredis.Link, yield match) { l.DelayNextReply(yield, 700*time.Millisecond) },
		"twice":           func(l *testredis.Link, yield match) { l.Duplicate(yield, nil) },
	} {
		t.Run(what, func(t *testing.T) {
			var struck atomic.Int64 // in a seed there may be none
			for seed := range int64(3) {
				t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						splitVotesWhereYieldsFail(t, seed, strike, &struck)
					})
				})
			}
			require.Positive(t, struck.Load(), "yields that were struck")
		})
	}
}

func splitVotesWhereYieldsFail(
	t *testing.T, seed int64, strike func(*testredis.Link, func(cmd []string) bool), struck *atomic.Int64,
) {
	peers := newSet(t, 5).crowd(10, seed)
	book := newScriptBook()
	book.watch(peers...)
	contend(t, peers, seed)
	time.Sleep(time.Second)
	isYield := func(cmd []string) bool {
		if book.nameOf(cmd) != scripts.Yield {
			return false
		}
		struck.Add(1)
		return true
	}
	for i, p := range peers {
		for j, link := range p.links {
			if (i+j)%2 == 0 {
				strike(link, isYield)
			}
		}
	}
	require.Less(t, contend(t, peers, seed), 15*time.Second, "a few claims at most")
}
