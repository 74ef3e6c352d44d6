package sqlguard

import (
	"context"
	"errors"
	"iter"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"time"
)

// IsConflict reports whether the database rolled a transaction back because of another one: a deadlock or a
// serialization failure, which are SQLSTATE 40001 (also MySQL's error 1213, and Galera's for a conflict with another
// node) and 40P01; MySQL's errors 3101, 1180 and 1030 for such a conflict in group replication; or a row that has
// changed since the transaction's snapshot, MariaDB's error 1020 with innodb_snapshot_isolation on. Nothing of the
// transaction was kept, so all of it may be run again, from its claim on. An error that matches [ErrTransactionEnded]
// is not a conflict.
//
// Roll back first: in MySQL and MariaDB each further statement of the same *[sql.Tx] is committed by itself, and the
// claim was rolled back with the rest. [Guard.Do] does so, and detects work that continues after a conflict, also if it
// returns the conflict.
//
// It searches the wrapped errors for a method SQLState() string, as the errors of pgx and lib/pq have, or for the
// fields Number, SQLState and Message, as the errors of go-sql-driver/mysql have.
func IsConflict(err error) bool {
	if errors.Is(err, ErrTransactionEnded) {
		return false
	}
	code := codeOf(err)
	return slices.Contains(rolledBack, code.state) || code.number == recordChanged ||
		(code.number == engineError || code.number == commitError) && deadlock.MatchString(code.text)
}

// rolledBack are the SQLSTATEs of a transaction that another one has ended. 40000 is MySQL's error 3101.
var rolledBack = []string{"40001", "40P01", "40000"}

// recordChanged is MariaDB's error "Record has changed since last read". Its SQLSTATE is the general HY000, as that of
// MySQL's errors of a storage engine, for a statement and for a COMMIT. Their text has the number of the cause: of a
// deadlock, or of a savepoint that is gone because the engine has ended the transaction.
const (
	recordChanged = 1020
	engineError   = 1030
	commitError   = 1180
)

// lockWaitTimeout is MySQL's error of a statement that has waited for a lock for too long. With
// innodb_rollback_on_timeout the server rolls back the whole transaction. It names no other transaction, so it is no
// conflict.
const lockWaitTimeout = 1205

var deadlock = regexp.MustCompile(`\b(149|153)\b`)

// sqlState returns the SQLSTATE of err, or "".
func sqlState(err error) string { return codeOf(err).state }

// code is a database's code of an error.
type code struct {
	state  string // SQLSTATE
	number uint16 // MySQL's
	text   string // MySQL's
}

// codeOf returns the code of the first error in err's tree that has one. This package imports no driver.
func codeOf(err error) code {
	for found := range codesOf(err) {
		return found
	}
	return code{}
}

// codesOf are the codes in err's tree.
func codesOf(err error) iter.Seq[code] {
	return func(yield func(code) bool) { yieldCodes(err, yield) }
}

func yieldCodes(err error, yield func(code) bool) bool {
	if stated, ok := err.(interface{ SQLState() string }); ok {
		return yield(code{state: stated.SQLState()})
	}
	if found := codeFields(err); found != (code{}) {
		return yield(found)
	}
	switch wrapper := err.(type) {
	case interface{ Unwrap() error }:
		return yieldCodes(wrapper.Unwrap(), yield)
	case interface{ Unwrap() []error }:
		for _, inner := range wrapper.Unwrap() {
			if !yieldCodes(inner, yield) {
				return false
			}
		}
	}
	return true
}

// codeFields returns the fields SQLState [5]byte, Number uint16 and Message of a struct such as *mysql.MySQLError.
func codeFields(err error) (found code) {
	value := reflect.Indirect(reflect.ValueOf(err))
	if value.Kind() != reflect.Struct {
		return code{}
	}
	if state, ok := fieldOf[[5]byte](value, "SQLState"); ok {
		found.state = string(state[:])
		found.number, _ = fieldOf[uint16](value, "Number")
		found.text, _ = fieldOf[string](value, "Message")
	}
	return found
}

func fieldOf[T any](value reflect.Value, name string) (content T, ok bool) {
	field, ok := value.Type().FieldByName(name)
	if !ok || len(field.Index) != 1 || field.Type != reflect.TypeFor[T]() {
		return content, false
	}
	return value.FieldByIndex(field.Index).Interface().(T), true
}

const (
	conflictRetries = 10
	conflictBackoff = time.Millisecond // doubled with each try; the wait is a random part of it
)

// retryConflicts repeats a try that failed by a conflict. Each conflict lets at least one of its transactions proceed,
// so a few tries are enough; the random wait keeps the other transactions from colliding again.
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
