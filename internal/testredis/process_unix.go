//go:build unix && !linux

package testredis

import "os/exec"

// dieWithParent has no counterpart here: a test binary that is killed leaves its servers behind.
func dieWithParent(*exec.Cmd) {}

// stopped takes the signal for its effect.
func stopped(int) bool { return true }
