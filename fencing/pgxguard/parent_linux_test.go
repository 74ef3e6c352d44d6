package pgxguard_test

import "syscall"

// endWithParent makes the kernel end a server if its test process was killed and could not end it.
func endWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
