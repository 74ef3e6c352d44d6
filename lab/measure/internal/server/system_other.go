//go:build !linux

package server

import (
	"time"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// ClientCPU is known on Linux only, and 0 elsewhere.
func ClientCPU() time.Duration { return 0 }

// Pin does nothing: it needs Linux.
func Pin(...*testredis.Server) (undo func() error, err error) {
	return func() error { return nil }, nil
}

func sharpenSleep() {}

func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }
