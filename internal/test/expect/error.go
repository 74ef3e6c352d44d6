package expect

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// ErrorOf is the error of a call, beside which it returns nothing.
func ErrorOf[T any](got T, err error) error {
	if err != nil && !reflect.ValueOf(&got).Elem().IsZero() {
		panic(fmt.Sprintf("%v beside an error: %v", got, err))
	}
	return err
}

// Fails checks that the error is each of those errors, and that its text has each of those texts.
func Fails(t testing.TB, err error, want ...any) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, where it should be %v", want)
	}
	for _, one := range want {
		target, is := one.(error)
		if is && !errors.Is(err, target) || !is && !strings.Contains(err.Error(), one.(string)) {
			t.Fatalf("the error is not %q: %v", one, err)
		}
	}
}
