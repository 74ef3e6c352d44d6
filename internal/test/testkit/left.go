package testkit

import (
	"strconv"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
)

var nameDecoder = strings.NewReplacer("%25", "%", "%7B", "{", "%7D", "}")

// HasOnlyTokens reports whether the first master has nothing of any lock but its token.
func (w *World) HasOnlyTokens() bool {
	for _, key := range w.LockKeys() {
		// What has expired stays until the lock is used again.
		if name, is := strings.CutSuffix(key, "}:x"); is {
			if w.Command("ZCOUNT", key, strconv.FormatInt(time.Now().UnixMilli(), 10), "+inf") != int64(0) {
				return false
			}
			name = nameDecoder.Replace(name[strings.IndexByte(name, '{')+1:])
			if w.observer == nil || w.observer.TryOnce(name) != nil {
				return false
			}
		}
	}
	for _, key := range w.LockKeys() {
		if !strings.HasSuffix(key, "}") {
			return false
		}
		for _, field := range w.Command("HKEYS", key).([]any) {
			if field != "t" && field != "s" && field != "c" { // c goes with the next that is not straight
				return false
			}
		}
	}
	return true
}

// UntilOnlyTokens returns when the last tombstone has expired, which in fake time may take a minute.
func (w *World) UntilOnlyTokens() {
	w.Helper()
	if w.Mini == nil {
		w.Eventually("only tokens are left", w.HasOnlyTokens)
		return
	}
	for limit := time.Now().Add(2 * Patience); !w.HasOnlyTokens(); w.Pass(time.Second) {
		require.True(w, time.Now().Before(limit), "keys left: %q", w.Keys())
	}
}

// OnlyTombstonesLeft fails the test if anything of a lock but its token and tombstones is on the server, or if a
// tombstone ends later than within that time.
func (w *World) OnlyTombstonesLeft(within time.Duration) {
	w.Helper()
	w.Settle()
	end := strconv.FormatInt(time.Now().Add(within).UnixMilli()+1, 10)
	for _, key := range w.LockKeys() {
		if strings.HasSuffix(key, "}:x") {
			require.Zero(w, w.Command("ZCOUNT", key, end, "+inf"), key)
			continue
		}
		require.True(w, strings.HasSuffix(key, "}"), key)
		for _, field := range w.Command("HKEYS", key).([]any) {
			switch value := w.Command("HGET", key, field.(string)); field {
			case "t", "s", "c":
			case "n": // of holds, waiters and those aside
				require.Regexp(w, "^0 0 ", value, key)
			default:
				require.Regexp(w, "^x ", value, key)
			}
		}
	}
}

// OnlyTokensLeft fails the test if anything of a lock but its token is on the server.
func (w *World) OnlyTokensLeft() {
	w.Helper()
	w.Settle()
	require.True(w, w.HasOnlyTokens(), "keys left: %q", w.Keys())
}

// RequireFree fails the test unless every master shows the lock without holders and waiters.
func (p *Process) RequireFree(name string) {
	p.W.Helper()
	state, err := p.Inspect(p.W.Ctx, name)
	require.NoError(p.W, err)
	for _, m := range state.Masters {
		require.NoError(p.W, m.Err)
		require.Empty(p.W, m.Holders, "master %d", m.Index)
		require.Empty(p.W, m.Waiters, "master %d", m.Index)
	}
}
