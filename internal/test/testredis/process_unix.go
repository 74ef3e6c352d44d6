//go:build unix && !linux

package testredis

import "os/exec"

// dieWithParent has no counterpart on this platform: a test binary that is killed leaves its servers behind.
func dieWithParent(*exec.Cmd) {}

// stopped assumes that the signal has taken effect.
func stopped(int) bool { return true }
