//go:build !unix

package main

// The servers of these workloads are processes that are frozen and killed.
func deployed() []Workload { return nil }

func deployedBounds() []bound { return nil }
