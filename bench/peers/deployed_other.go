//go:build !unix

package main

// The deployed workloads freeze and kill server processes, which needs the signals of Unix.
func deployed() []Workload { return nil }

func deployedBounds() []bound { return nil }
