//go:build !linux

package sqltest

import "syscall"

// endWithParent does nothing where the kernel cannot tell a process that its
// parent has ended: there a server outlives tests that were killed.
func endWithParent(*syscall.SysProcAttr) {}
