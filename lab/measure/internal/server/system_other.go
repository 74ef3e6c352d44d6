//go:build !linux

package server

import "time"

// ClientCPU is known on Linux only, and 0 elsewhere.
func ClientCPU() time.Duration { return 0 }

// Pin does nothing: it needs Linux.
func Pin(...*Server) (undo func() error, err error) { return func() error { return nil }, nil }

func sharpenSleep() {}

func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }
