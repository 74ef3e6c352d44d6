package redlock_test

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// isYield matches the commands by which a contender gives way to an older one.
func isYield(cmd []string) bool {
	sum := sha1.Sum([]byte(scripts.Source(scripts.Yield)))
	return len(cmd) > 1 && (cmd[1] == hex.EncodeToString(sum[:]) || cmd[1] == scripts.Source(scripts.Yield))
}

// A contender that does not know whether it has given way neither counts that grant nor stays in the others' way,
// whether the answer got lost with its connection, did not come, or the request ran twice.
func TestSplitVotesWithYieldsOfUnknownOutcome(t *testing.T) {
	for what, strike := range map[string]func(*testredis.Link){
		"answer lost":     func(l *testredis.Link) { l.DropNextReply(isYield) },
		"answer withheld": func(l *testredis.Link) { l.MuteNextReply(isYield) },
		"request lost":    func(l *testredis.Link) { l.DropNextCommand(isYield) },
		"answer late":     func(l *testredis.Link) { l.DelayNextReply(isYield, 700*time.Millisecond) },
		"twice":           func(l *testredis.Link) { l.Duplicate(isYield, nil) },
	} {
		for seed := range int64(3) {
			t.Run(fmt.Sprintf("%s, seed %d", what, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					peers := newSet(t, 5).crowd(10, seed)
					contend(t, peers, seed)
					time.Sleep(time.Second)
					for i, p := range peers {
						for j, link := range p.links {
							if (i+j)%2 == 0 {
								strike(link)
							}
						}
					}
					took := contend(t, peers, seed)
					require.Less(t, took, 15*time.Second, "a few claims at most")
				})
			})
		}
	}
}
