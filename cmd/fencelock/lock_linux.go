package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// endWithParent has the kernel end the command when this process ends, in any way.
func endWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// lookBelow finds the process groups below the command, for kill: an inner fencelock has made one for its own command.
// The command is alive: when it has ended, its children have another parent.
func (g *group) lookBelow() {
	parents, groups := map[int]int{}, map[int]int{}
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		id, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, _ := os.ReadFile("/proc/" + entry.Name() + "/stat") // "id (name) state parent group ..."
		var state string
		var parent, of int
		rest := text[bytes.LastIndexByte(text, ')')+1:]
		if n, _ := fmt.Sscan(string(rest), &state, &parent, &of); n == 3 {
			parents[id], groups[id] = parent, of
		}
	}
	for id, of := range groups {
		for at := id; at != 0; at = parents[at] {
			if at == g.leader.Pid && of != g.leader.Pid {
				g.below = append(g.below, of)
			}
		}
	}
}
