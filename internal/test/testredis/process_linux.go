package testredis

import (
	"bytes"
	"fmt"
	"os"
)

// stopped reports whether the kernel has suspended the process, which follows the signal a little later.
func stopped(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	// The state is the field after the command name, which is in brackets and may hold any character.
	_, rest, ok := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(" "))
	return ok && len(rest) > 0 && rest[0] == 'T'
}
