//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package main

import "syscall"

// endWithParent does nothing: on this system the command goes on if this process is killed.
func endWithParent(*syscall.SysProcAttr) {}

// lookBelow finds no process groups: those of inner commands go on.
func (g *group) lookBelow() {}
