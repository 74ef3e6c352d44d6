package process

import "syscall"

// endWithParent makes the kernel end a process when this one ends, in any way.
func endWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
