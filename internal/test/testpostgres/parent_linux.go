package testpostgres

import "syscall"

// endWithParent makes the kernel end a server with its test process, if that was killed.
func endWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
