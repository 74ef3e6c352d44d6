package scripts_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

const (
	tokenKey = 4 // in lockKeys
	maxExact = 1<<53 - 1
)

// grant acquires for a moment, and returns the token and the server's time.
func (b *bed) grant(hold, mode string) (token, us int64) {
	b.t.Helper()
	reply := b.run(acquire(hold, hold, mode, ttl, claim, "a"))
	require.EqualValues(b.t, 1, reply[0])
	b.run(release(hold, 0))
	return reply[1].(int64), reply[3].(int64)
}

func (b *bed) setToken(token string) {
	b.t.Helper()
	b.set(lockKeys("n")[tokenKey], token)
}

func (b *bed) set(key, text string) {
	b.t.Helper()
	require.NoError(b.t, b.do("SET", key, text).Error())
}

func (b *bed) token() string {
	b.t.Helper()
	text, err := b.do("GET", lockKeys("n")[tokenKey]).ToString()
	require.NoError(b.t, err)
	return text
}

func TestTokensAboveTheClockCountByOne(t *testing.T) {
	everywhere(t, func(b *bed) {
		// Above 1e14 Lua's own conversion rounds: 123456789012345 would be 1.2345678901234e+14.
		for _, start := range []int64{8_000_000_000_000_001, 8_765_432_109_876_543, maxExact - 100} {
			b.flushAll()
			b.setToken(texts([]any{start})[0])
			for i := range int64(20) {
				mode := []string{"r", "w"}[i%2]
				token, _ := b.grant(texts([]any{100 + i})[0], mode)
				require.Equal(b.t, start+1+i, token)
				require.Equal(b.t, texts([]any{token})[0], b.token())
			}
			held := b.run(acquire("77", "A", "w", ttl, claim, "a"))[1].(int64)
			require.Equal(b.t, start+21, held)
			require.Equal(b.t, held, b.run(acquire("77", "A", "w", ttl, claim, "a"))[1], "asked again")
			require.Equal(b.t, held, b.run(renew("77", ttl))[1])
			require.Equal(b.t, held, b.run(join("78", "A", "w", ttl, claim))[1])
			require.Equal(b.t, held, b.run(call{scripts.Inspect, lockKeys("n")[:1], nil})[2])
			b.run(acquire("79", "B", "r", ttl, claim, "a"))
			b.run(release("77", 0))
			b.run(release("78", 0))
			handed := b.run(refresh("79", claim))
			require.Equal(b.t, held+1, handed[3])
		}
	})
}

// The message of a hand-off carries the token and the time as text.
func TestHandOffMessageIsExact(t *testing.T) {
	everywhere(t, func(b *bed) {
		b.setToken("8765432109876543")
		b.run(acquire("01", "A", "w", ttl, claim, "a"))
		b.run(acquire("02", "B", "w", ttl, claim, "a"))
		c, done := b.client.Dedicate()
		defer done()
		heard := make(chan string, 1)
		b.subscribe(c, "fencelock:c:client", heard)
		reply := b.run(release("01", 0))
		us := texts([]any{reply[1]})[0]
		require.Equal(b.t, "02 8765432109876545 "+us+" 200", <-heard)
	})
}

func TestTokenIsAtLeastTheServersClock(t *testing.T) {
	everywhere(t, func(b *bed) {
		last := int64(0)
		for _, lose := range []func(){
			func() {},
			b.flushAll,
			func() { require.NoError(b.t, b.do("DEL", lockKeys("n")[tokenKey]).Error()) },
			func() { b.setToken("1") },               // rolled back
			func() { b.setToken("946000000000000") }, // an older clock
			func() {
				require.NoError(b.t, b.do("PEXPIRE", lockKeys("n")[tokenKey], "1").Error())
				b.pass(5 * time.Millisecond)
			},
		} {
			lose()
			b.pass(time.Millisecond)
			token, us := b.grant("01", "w")
			require.Equal(b.t, us, token)
			require.Greater(b.t, token, last)
			last = token
			left, err := b.do("PTTL", lockKeys("n")[tokenKey]).AsInt64()
			require.NoError(b.t, err)
			require.InDelta(b.t, 24*time.Hour.Milliseconds(), left, 1000, "the counter lives for a day")
		}
	})
}

// One of several masters takes the client's proposal, but neither a counter back nor its own clock ahead by over 1 s.
func TestProposalIsAFloor(t *testing.T) {
	everywhere(t, func(b *bed) {
		b.run(call{scripts.Marker, []string{markerKey}, []string{"birth", "rules", "10000"}})
		mint := func(proposal int64) (token, us int64) {
			reply := b.run(onQuorum("n", proposal, scripts.Acquire, "01", "A", "w", "c", ttl, claim, "h", ""))
			require.EqualValues(b.t, 1, reply[0])
			b.run(onQuorum("n", proposal, scripts.Release, "01", 0))
			return reply[1].(int64), reply[3].(int64)
		}
		token, us := mint(1)
		require.Equal(b.t, us, token, "without a counter it takes its own clock")
		next, _ := mint(1)
		require.Equal(b.t, token+1, next, "with one the proposal alone")
		ahead := us + 700_000
		next, _ = mint(ahead)
		require.Equal(b.t, ahead, next)
		next, us = mint(maxExact)
		require.Equal(b.t, us+1_000_000, next, "a client's clock far ahead is capped")
		last, _ := mint(maxExact)
		require.Greater(b.t, last, next)
		again, _ := mint(0)
		require.Equal(b.t, last+1, again)
	})
}

// Every grant mints, and no two grants share a token, whatever mode and way they come by.
func TestNoTwoGrantsShareAToken(t *testing.T) {
	everywhere(t, func(b *bed) {
		seen := map[int64]bool{}
		note := func(token any) {
			require.False(b.t, seen[token.(int64)], "token %d twice", token)
			seen[token.(int64)] = true
		}
		for _, hold := range []string{"01", "02", "03"} { // in one moment of fake time
			note(b.run(acquire(hold, hold, "r", ttl, claim, "a"))[1])
		}
		for _, hold := range []string{"04", "05", "06"} {
			b.run(acquire(hold, hold, map[bool]string{true: "w", false: "r"}[hold == "04"], ttl, claim, "a"))
		}
		for _, hold := range []string{"01", "02", "03", "04"} {
			b.run(release(hold, 0))
			if hold == "03" {
				note(b.run(refresh("04", claim))[3])
			}
		}
		reply := b.run(refresh("05", claim, "06", claim))
		note(reply[3])
		note(reply[6])
		require.Len(b.t, seen, 6)
	})
}
