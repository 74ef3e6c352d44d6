//go:build !linux

package sqltest

import "syscall"

// endWithParent does nothing: this kernel cannot signal the end of a parent, so a server outlives a test process that
// was killed.
func endWithParent(*syscall.SysProcAttr) {}
