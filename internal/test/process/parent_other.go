//go:build unix && !linux

package process

import "syscall"

// endWithParent has no counterpart here: servers outlive a process that was killed.
func endWithParent(*syscall.SysProcAttr) {}
