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
	p, q := w.Process(), w.Process()
	var leases []*rwlock.Lease
	var waiting []*pending
	tags := map[string]string{}
	for _, name := range trickyNames {
		before := len(w.LockKeys())
		lease, err := p.TryLock(w.Ctx, name)
		require.NoError(w, err, "%q collides", name)
		require.Equal(w, name, lease.Name())
		leases = append(leases, lease)
		require.Len(w, w.LockKeys(), before+1, "%q shares a key", name)
	}
	for _, key := range w.LockKeys() {
		// A cluster hashes what is between the first brace and the first closing one after it.
		open := strings.IndexByte(key, '{')
		shut := strings.IndexByte(key[open:], '}')
		require.Greater(w, shut, 1, "no hash tag in %q", key)
		tag := key[open : open+shut+1]
		rest := key[open+shut+1:]
		require.Empty(w, rest, "the tag of %q does not span the name", key)
		tags[tag] += rest
	}
	require.Len(w, tags, len(trickyNames))

	for i, name := range trickyNames {
		_, err := q.TryRLock(w.Ctx, name)
		e, ok := errors.AsType[*rwlock.AcquireError](err)
		require.True(w, ok, "%q: %v", name, err)
		require.Equal(w, leases[i].Owner(), e.Holder.Owner)
		waiting = append(waiting, q.Queue(name, rwlock.Write))
	}
	handedOff := q.Stats().HandedOff
	for i, lease := range leases {
		w.Release(lease)
		next := waiting[i].Granted()
		require.Equal(w, lease.Name(), next.Name())
		require.Greater(w, next.Token(), lease.Token())
		w.Release(next)
	}
	require.EqualValues(w, len(leases), q.Stats().HandedOff-handedOff)
	w.OnlyTokensLeft()
}

func refusedName(w *world) {
	p := w.Process()
	run := func(context.Context) error { w.Error("ran without the lock"); return nil }
	for _, name := range []string{
		"", strings.Repeat("a", 513), strings.Repeat("é", 257), "\xff", "a\xc3", "\xed\xa0\x80", "a\xf8b",
	} {
		mu := p.RWMutex(name)
		for entry, call := range map[string]func() error{
			"Lock":         func() error { _, err := p.Lock(w.Ctx, name); return err },
			"TryLock":      func() error { _, err := p.TryLock(w.Ctx, name); return err },
			"RLock":        func() error { _, err := p.RLock(w.Ctx, name); return err },
			"TryRLock":     func() error { _, err := p.TryRLock(w.Ctx, name); return err },
			"Do":           func() error { return p.Do(w.Ctx, name, run) },
			"RDo":          func() error { return p.RDo(w.Ctx, name, run) },
			"Inspect":      func() error { _, err := p.Inspect(w.Ctx, name); return err },
			"RWMutex.Lock": func() error { return mu.Lock(w.Ctx) },
			"RWMutex.RTry": func() error { return mu.TryRLock(w.Ctx) },
		} {
			err := call()
			require.ErrorIs(w, err, rwlock.ErrOption, "%s(%q)", entry, name)
			e, ok := errors.AsType[*rwlock.OptionError](err)
			require.True(w, ok)
			require.Equal(w, "name", e.Option)
			require.NotEmpty(w, e.Rule)
			require.Contains(w, err.Error(), e.Rule)
		}
	}
	require.Zero(w, p.Link.Calls("EVALSHA")+p.Link.Calls("EVAL"), "nothing is sent")
	require.Empty(w, w.Keys())
}

func prefixes(w *world) {
	p, q, r := w.Process(), w.Process(rwlock.WithPrefix("team:blue")), w.Process(rwlock.WithPrefix("team:blue"))
	one := p.Take("n", rwlock.Write)
	two := q.Take("n", rwlock.Write)
	next := r.Acquire(w.Ctx, "n", rwlock.Write)
	w.Eventually("one waits", func() bool {
		s, err := q.Inspect(w.Ctx, "n")
		return err == nil && len(s.Waiters) == 1
	})
	for _, key := range w.LockKeys() {
		require.Regexp(w, `^(fencelock|team:blue):\{n\}`, key)
	}
	w.Release(two)
	w.Release(next.Granted())
	require.EqualValues(w, 1, r.Stats().HandedOff, "the message found its way")
	w.Release(one)
	w.OnlyTokensLeft()
}
