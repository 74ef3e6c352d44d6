package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/lab/peer"
)

// noLock is the name of the library that locks nothing: every caller has every lock at once.
const noLock = "no lock"

// libraries returns those that are compared, by shorter names than package peer has: with the defaults that their
// documentation shows.
func libraries() []peer.Library {
	all := []peer.Library{{Name: noLock, Open: func(peer.Options) (peer.Peer, error) { return nothing{}, nil }}}
	for _, name := range []struct{ short, long string }{
		{"redislock", peer.Redislock},
		{"redsync", peer.RedsyncGoRedis},
		{"rueidislock", peer.RueidislockAsIs},
		{"fencelock", peer.Ours},
	} {
		lib := append(peer.Named(name.long), peer.AsIs())[0]
		lib.Name = name.short
		all = append(all, lib)
	}
	return all
}

// libraryNames are the names of the libraries that can be compared.
func libraryNames() string {
	var names []string
	for _, lib := range libraries() {
		names = append(names, lib.Name)
	}
	return strings.Join(names, ", ")
}

func libraryNamed(name string) (peer.Library, error) {
	all := libraries()
	i := slices.IndexFunc(all, func(lib peer.Library) bool { return lib.Name == name })
	if i < 0 {
		return peer.Library{}, fmt.Errorf("no lock library is called %q", name)
	}
	return all[i], nil
}

type nothing struct{}

func (nothing) Lock(context.Context, string) (peer.Hold, error) { return nothingHeld(rand.Text()), nil }

func (nothing) Close() error { return nil }

// nothingHeld is the random value of a hold of nothing.
type nothingHeld string

func (nothingHeld) Release(context.Context) error { return nil }

func (h nothingHeld) Value() string { return string(h) }

// keeper renews the holds of a library that leaves this to its user, three times in a TTL.
type keeper struct {
	ttl time.Duration
	all sync.WaitGroup
}

// hold is a lock that was taken, as guards and the history see it.
type hold struct {
	peer.Hold
	value string
	token fencing.Token
	until atomic.Pointer[time.Time] // nil if the library tells of no time
	stop  context.CancelFunc
}

// keep renews the hold until its release.
func (k *keeper) keep(of peer.Hold) *hold {
	h := &hold{Hold: of, stop: func() {}}
	switch valued := of.(type) {
	case interface{ Value() string }:
		h.value = valued.Value()
	case interface{ Token() string }:
		h.value = valued.Token()
	case peer.Fenced:
		h.token = valued.Token()
	}
	extender, ok := of.(peer.Extender)
	if !ok {
		return h
	}
	h.note()
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	k.all.Go(func() {
		tick := time.NewTicker(k.ttl / 3)
		defer tick.Stop()
		for extended := time.Now(); time.Since(extended) < k.ttl; h.note() {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if at := time.Now(); extender.Extend(ctx) == nil {
				extended = at
			}
		}
	})
	return h
}

// note keeps the end of the lock's validity, which its own goroutine may read alone.
func (h *hold) note() {
	if valid, ok := h.Hold.(interface{ Until() time.Time }); ok {
		until := valid.Until()
		h.until.Store(&until)
	}
}

// Held reports whether the lock is still held, by the means that the library has for this question: a time of validity
// or a question to the server where it is the user who renews.
func (h *hold) Held(ctx context.Context) bool {
	if until := h.until.Load(); until != nil {
		return time.Now().Before(*until)
	}
	switch of := h.Hold.(type) {
	case peer.Kept:
		return !of.Lost()
	case interface {
		TTL(ctx context.Context) (time.Duration, error)
	}:
		left, err := of.TTL(ctx)
		return err == nil && left > 0
	}
	return true
}

func (h *hold) Release(ctx context.Context) error {
	h.stop()
	return h.Hold.Release(ctx)
}
