// Package expect takes the value of a function that must not fail, in one expression:
//
//	seen := expect.NoError(guard.Seen(ctx, "orders/42")).In(t)
package expect

import "testing"

// Returned is what a function has returned.
type Returned[T any] struct {
	value T
	err   error
}

// NoError takes what a function returns.
func NoError[T any](value T, err error) Returned[T] { return Returned[T]{value, err} }

// In returns the value. An error ends the test, with what it is about.
func (r Returned[T]) In(t testing.TB, about ...any) T {
	t.Helper()
	if r.err != nil {
		t.Fatalf("unexpected error: %v %v", r.err, about)
	}
	return r.value
}
