package sqltest

import "syscall"

// endWithParent makes the kernel end a server if its test process was killed or ran into its time limit, and so could
// not end it.
func endWithParent(attributes *syscall.SysProcAttr) { attributes.Pdeathsig = syscall.SIGKILL }
