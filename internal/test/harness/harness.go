// Package harness lets a program use test support, such as the servers of internal/test/testredis.
package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// Run calls f as a test is called: on a separate goroutine, which Fatal ends. It runs all cleanups before it returns.
// The error joins the error of f, the failures that f reported through the testing.TB, and the failures of the
// cleanups.
func Run(ctx context.Context, f func(t testing.TB) error) error {
	r := &run{ctx: ctx}
	var err error
	r.await(func() { err = f(r) })
	for r.takeDown() {
	}
	return errors.Join(err, errors.Join(r.failures...))
}

// run is a testing.TB outside a test. It has the methods that testredis calls. All other methods panic.
type run struct {
	testing.TB
	ctx context.Context

	mu       sync.Mutex
	failures []error
	cleanups []func()
}

// await calls f on a separate goroutine and returns when that goroutine has ended.
func (r *run) await(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	<-ended
}

// takeDown calls the last cleanup that has not been called, and returns false if there is none.
func (r *run) takeDown() bool {
	r.mu.Lock()
	n := len(r.cleanups)
	if n == 0 {
		r.mu.Unlock()
		return false
	}
	last := r.cleanups[n-1]
	r.cleanups = slices.Delete(r.cleanups, n-1, n)
	r.mu.Unlock()
	r.await(last)
	return true
}

func (r *run) Helper() {}

func (r *run) Context() context.Context { return r.ctx }

func (r *run) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *run) TempDir() string {
	dir, err := os.MkdirTemp("", "fencelock-")
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			r.Errorf("%v", err)
		}
	})
	return dir
}

func (r *run) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Errorf(format, args...))
}

func (r *run) Fatal(args ...any) {
	r.Errorf("%s", fmt.Sprint(args...))
	runtime.Goexit()
}

func (r *run) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// Skip is called where a server is missing.
func (r *run) Skip(args ...any) { r.Fatal(args...) }
