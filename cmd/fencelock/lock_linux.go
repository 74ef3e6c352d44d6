package main

import "syscall"

// endWithParent has the kernel end the command when this process ends, in any way.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
