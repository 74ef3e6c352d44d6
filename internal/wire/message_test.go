package wire_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/wire"
)

func TestMessages(t *testing.T) {
	grant := wire.Handoff{
		Hold: hold, Token: us, GrantedAt: us + 1, TTL: 3 * time.Second, Server: "0123456789ab",
	}
	block := grant
	block.First = us - 9
	contended := block
	contended.Contended = true
	for text, want := range map[string]wire.Message{
		hold:             wire.YieldRequest{Hold: hold},
		hold + " wanted": wire.Contended{Hold: hold},
		hold + " 1700000000000000 1700000000000001 3000 0123456789ab":                    grant,
		hold + " 1700000000000000 1700000000000001 3000 0123456789ab 1699999999999991 0": block,
		hold + " 1700000000000000 1700000000000001 3000 0123456789ab 1699999999999991 3": contended,
	} {
		got := wire.ReadMessage(text)
		require.Equal(t, want, got)
		require.Equal(t, hold, got.About())
	}
}

func TestTextsThatAreNoMessage(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "a space": " ", "no hold": " wanted", "unknown": "h other", "double space": "h  wanted",
		"trailing space": "h wanted ", "three": "h 1 2", "four": "h 1 2 3", "six": "h 1 2 3 s 1", "eight": "h 2 2 3 s 1 0 x",
		"no token": "h 0 1 3000 s", "negative token": "h -1 1 3000 s", "token too large": "h 9007199254740992 1 3000 s",
		"token as float": "h 1e3 1 3000 s", "no time": "h 1 1 0 s", "time for ever": "h 1 1 9223372036854775807 s",
		"negative clock": "h 1 -1 3000 s", "no server": "h 1 1 3000 ", "block after its token": "h 1 1 3000 s 2 0",
		"block without a token": "h 1 1 3000 s 0 0", "negative waiters": "h 2 1 3000 s 1 -1",
	} {
		require.Nil(t, wire.ReadMessage(text), name)
	}
}

func FuzzMessages(f *testing.F) {
	f.Add("h")
	f.Add("h wanted")
	f.Add("h 1 1 3000 s")
	f.Add("h 2 1 3000 s 1 4")
	f.Fuzz(func(t *testing.T, text string) {
		message := wire.ReadMessage(text)
		if message == nil {
			return
		}
		require.Equal(t, strings.Split(text, " ")[0], message.About())
		require.NotEmpty(t, message.About())
		grant, ok := message.(wire.Handoff)
		if !ok {
			return
		}
		require.True(t, grant.Token > 0 && grant.Token <= fencing.MaxToken)
		require.Positive(t, grant.TTL)
		require.LessOrEqual(t, grant.First, grant.Token)
		ttl := grant.TTL.Milliseconds()
		again := fmt.Sprintf("%s %d %d %d %s", grant.Hold, grant.Token, grant.GrantedAt, ttl, grant.Server)
		if grant.First > 0 {
			again += fmt.Sprintf(" %d %d", grant.First, map[bool]int{true: 1}[grant.Contended])
		}
		require.Equal(t, grant, wire.ReadMessage(again))
	})
}
