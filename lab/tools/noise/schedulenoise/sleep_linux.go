package schedulenoise

import (
	"syscall"
	"time"
)

// sleep stops the thread, in real time also where testing/synctest fakes it.
func sleep(d time.Duration) {
	_ = syscall.Nanosleep(&syscall.Timespec{Nsec: int64(d)}, nil) // a signal may end it early
}
