package server

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed74116694/fencelock/internal/test/testredis"
)

// ClientCPU returns the processor time that this process has used so far.
func ClientCPU() time.Duration {
	var use unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &use) != nil {
		return 0
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

const maxCPUs = 1024 // that a unix.CPUSet has room for

// Pin moves this process and the servers to one processor, the last that it may use, and returns a function that undoes
// it. With two processors the wake-ups between them would dominate the measurement.
func Pin(servers ...*testredis.Server) (undo func() error, err error) {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var one unix.CPUSet
	for cpu := range maxCPUs {
		if before.IsSet(cpu) {
			one.Zero()
			one.Set(cpu)
		}
	}
	pids := []int{os.Getpid()}
	for _, s := range servers {
		pids = append(pids, pid(s))
	}
	procs := runtime.GOMAXPROCS(1) // the runtime's choice if it had been started pinned
	undo = func() error {
		defer runtime.GOMAXPROCS(procs)
		return setAffinity(pids, &before)
	}
	if err := setAffinity(pids, &one); err != nil {
		return nil, errors.Join(err, undo())
	}
	return undo, nil
}

// setAffinity moves every thread. A thread that begins during the loop inherits the processors of its creator, which
// may not have been moved so far; so the threads are listed until all of them are known.
func setAffinity(pids []int, cpus *unix.CPUSet) error {
	moved := make(map[int]bool)
	for before := -1; before != len(moved); {
		before = len(moved)
		for _, pid := range pids {
			if err := moveThreads(pid, cpus, moved); err != nil {
				return err
			}
		}
	}
	return nil
}

// moveThreads moves the threads that were not moved so far. A thread that has ended is skipped.
func moveThreads(pid int, cpus *unix.CPUSet, moved map[int]bool) error {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		if moved[id] {
			continue
		}
		if err := unix.SchedSetaffinity(id, cpus); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("sched_setaffinity of thread %d: %w", id, err)
		}
		moved[id] = true
	}
	return nil
}

// sharpenSleep has the kernel wake this thread without the usual slack of 50 us.
func sharpenSleep() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

// sleepUntil sleeps in the kernel: the runtime's timers have the precision of a millisecond in an idle process.
func sleepUntil(t time.Time) {
	for left := time.Until(t); left > 0; left = time.Until(t) {
		rest := unix.NsecToTimespec(left.Nanoseconds())
		_ = unix.Nanosleep(&rest, nil) // a signal ends it early
	}
}
