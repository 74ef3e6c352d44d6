//go:build !linux

package testpostgres

import "syscall"

// endWithParent does nothing here: a server goes on after its test process was killed.
func endWithParent(*syscall.SysProcAttr) {}
