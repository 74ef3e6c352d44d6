package peer

import (
	"context"
	"strconv"
	"sync/atomic"

	"github.com/seed74116694/fencelock/fencing"
)

// none locks nothing: every caller has every lock at once.
type none struct {
	process string
	holds   atomic.Uint64
}

func openNone(Options) (Locks, error) { return &none{process: randomValue()}, nil }

func (n *none) Lock(context.Context, string) (Hold, error) {
	return noHold(n.process + strconv.FormatUint(n.holds.Add(1), 10)), nil
}

func (n *none) Close() {}

// noHold is the random value of a hold of nothing.
type noHold string

func (noHold) Held(context.Context) bool     { return true }
func (noHold) Release(context.Context) error { return nil }
func (noHold) Token() fencing.Token          { return 0 }
func (h noHold) Value() string               { return string(h) }
