package rwlock_test

import (
	"context"
	"errors"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/rwlock"
)

// trickyNames look like each other's keys, or break naive quoting.
var trickyNames = []string{
	"a", "A", "a:b", "a:h", "a:q", "a:w", "a:t", "a}:t", "a}", "{a", "{a}", "{{a}}", "a{b}c", "{", "}", "{}", "}{", "}:t",
	"%", "%%", "%7B", "%7b", "%257B", "%7Ba%7D", "%25", "%d", "a%", " ", "a ", " a", "a b", "a  b",
	"\n", "a\nb", "\r\n", "\x00",
	"*", "?", "[a]", "\\", "'", "\"", "名前", "é", "e\u0301", "\U0001F512", "fencelock:{a}", "n:a", "c:a", "0",
	strings.Repeat("a", 512), strings.Repeat("é", 256), strings.Repeat("{", 512), strings.Repeat("%", 511) + "}",
}

func anyName(w *world) {
	p, q := w.process(), w.process()
	var leases []*rwlock.Lease
	var waiting []*pending
	tags := map[string]string{}
	for _, name := range trickyNames {
		before := len(w.lockKeys())
		lease, err := p.TryLock(w.ctx, name)
		require.NoError(w.t, err, "%q collides", name)
		require.Equal(w.t, name, lease.Name())
		leases = append(leases, lease)
		require.Len(w.t, w.lockKeys(), before+1, "%q shares a key", name)
	}
	for _, key := range w.lockKeys() {
		// A cluster hashes what is between the first brace and the first closing one after it.
		open := strings.IndexByte(key, '{')
		shut := strings.IndexByte(key[open:], '}')
		require.Greater(w.t, shut, 1, "no hash tag in %q", key)
		tag := key[open : open+shut+1]
		rest := key[open+shut+1:]
		require.Empty(w.t, rest, "the tag of %q does not span the name", key)
		tags[tag] += rest
	}
	require.Len(w.t, tags, len(trickyNames))

	for i, name := range trickyNames {
		_, err := q.TryRLock(w.ctx, name)
		e, ok := errors.AsType[*rwlock.AcquireError](err)
		require.True(w.t, ok, "%q: %v", name, err)
		require.Equal(w.t, leases[i].Owner(), e.Holder.Owner)
		waiting = append(waiting, q.queue(name, rwlock.Write))
	}
	handedOff := q.Stats().HandedOff
	for i, lease := range leases {
		w.release(lease)
		next := waiting[i].granted()
		require.Equal(w.t, lease.Name(), next.Name())
		require.Greater(w.t, next.Token(), lease.Token())
		w.release(next)
	}
	require.EqualValues(w.t, len(leases), q.Stats().HandedOff-handedOff)
	w.onlyTokensLeft()
}

func refusedName(w *world) {
	p := w.process()
	run := func(context.Context) error { w.t.Error("ran without the lock"); return nil }
	for _, name := range []string{
		"", strings.Repeat("a", 513), strings.Repeat("é", 257), "\xff", "a\xc3", "\xed\xa0\x80", "a\xf8b",
	} {
		mu := p.RWMutex(name)
		for entry, call := range map[string]func() error{
			"Lock":         func() error { _, err := p.Lock(w.ctx, name); return err },
			"TryLock":      func() error { _, err := p.TryLock(w.ctx, name); return err },
			"RLock":        func() error { _, err := p.RLock(w.ctx, name); return err },
			"TryRLock":     func() error { _, err := p.TryRLock(w.ctx, name); return err },
			"Do":           func() error { return p.Do(w.ctx, name, run) },
			"RDo":          func() error { return p.RDo(w.ctx, name, run) },
			"Inspect":      func() error { _, err := p.Inspect(w.ctx, name); return err },
			"RWMutex.Lock": func() error { return mu.Lock(w.ctx) },
			"RWMutex.RTry": func() error { return mu.TryRLock(w.ctx) },
		} {
			err := call()
			require.ErrorIs(w.t, err, rwlock.ErrOption, "%s(%q)", entry, name)
			e, ok := errors.AsType[*rwlock.OptionError](err)
			require.True(w.t, ok)
			require.Equal(w.t, "name", e.Option)
			require.NotEmpty(w.t, e.Rule)
			require.Contains(w.t, err.Error(), e.Rule)
		}
	}
	require.Zero(w.t, p.link.Calls("EVALSHA")+p.link.Calls("EVAL"), "nothing is sent")
	require.Empty(w.t, w.keys())
}

func prefixes(w *world) {
	p, q, r := w.process(), w.process(rwlock.WithPrefix("team:blue")), w.process(rwlock.WithPrefix("team:blue"))
	one := p.lock("n", rwlock.Write)
	two := q.lock("n", rwlock.Write)
	next := r.acquire(w.ctx, "n", rwlock.Write)
	w.eventually("one waits", func() bool {
		s, err := q.Inspect(w.ctx, "n")
		return err == nil && len(s.Waiters) == 1
	})
	for _, key := range w.lockKeys() {
		require.Regexp(w.t, `^(fencelock|team:blue):\{n\}`, key)
	}
	w.release(two)
	w.release(next.granted())
	require.EqualValues(w.t, 1, r.Stats().HandedOff, "the message found its way")
	w.release(one)
	w.onlyTokensLeft()
}
