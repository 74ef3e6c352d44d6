package sqlguard

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"time"
)

// IsConflict reports whether the database rolled a transaction back because of another one: a deadlock or a
// serialization failure, which are SQLSTATE 40001 (also MySQL's error 1213) and 40P01. Nothing of the transaction was
// kept, so all of it may be run again, from its claim on. An error that matches [ErrTransactionEnded] is no conflict.
//
// It looks through wrapped errors for a method SQLState() string, as the errors of pgx and lib/pq have, or a field
// SQLState, as those of go-sql-driver/mysql have.
func IsConflict(err error) bool {
	if errors.Is(err, ErrTransactionEnded) {
		return false
	}
	state := sqlState(err)
	return state == "40001" || state == "40P01"
}

// sqlState returns the SQLSTATE of the first error in err's tree that has one, or "". This package imports no driver.
func sqlState(err error) string {
	if stated, ok := err.(interface{ SQLState() string }); ok {
		return stated.SQLState()
	}
	if state := stateField(err); state != "" {
		return state
	}
	switch wrapper := err.(type) {
	case interface{ Unwrap() error }:
		return sqlState(wrapper.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range wrapper.Unwrap() {
			if state := sqlState(inner); state != "" {
				return state
			}
		}
	}
	return ""
}

// stateField returns the field SQLState [5]byte of a struct, as *mysql.MySQLError is one.
func stateField(err error) string {
	value := reflect.Indirect(reflect.ValueOf(err))
	if value.Kind() != reflect.Struct {
		return ""
	}
	field, ok := value.Type().FieldByName("SQLState")
	if !ok || len(field.Index) != 1 || field.Type != reflect.TypeFor[[5]byte]() {
		return ""
	}
	state := value.FieldByIndex(field.Index).Interface().([5]byte)
	return string(state[:])
}

const (
	conflictRetries = 10
	conflictBackoff = time.Millisecond // doubled with each try, and then a random part of it
)

// retryConflicts repeats a try that failed by a conflict. Each conflict lets at least one of those in it go on, so a
// few tries are enough; the random wait keeps the others from meeting again.
func retryConflicts(ctx context.Context, try func() error) error {
	for n := 0; ; n++ {
		err := try()
		if n == conflictRetries || !IsConflict(err) || ctx.Err() != nil {
			return err
		}
		wait := time.NewTimer(rand.N(conflictBackoff << n))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return err
		}
	}
}
