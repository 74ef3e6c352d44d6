//go:build !linux

package schedulenoise

import (
	"runtime"
	"time"
)

// sleep yields as often as takes about the time: time.Sleep would be in fake time under testing/synctest.
func sleep(d time.Duration) {
	for range d / time.Microsecond {
		runtime.Gosched()
	}
}
