package sqlguard_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
)

// methodState is an error as those of pgx and lib/pq.
type methodState string

func (methodState) Error() string      { return "by method" }
func (s methodState) SQLState() string { return string(s) }

// fieldState is an error as those of go-sql-driver/mysql.
type fieldState struct {
	Number   uint16
	SQLState [5]byte
	Message  string
}

func (*fieldState) Error() string { return "by field" }

func field(state string) error {
	var e fieldState
	copy(e.SQLState[:], state)
	return &e
}

// otherField has a field of this name that is something else.
type otherField struct{ SQLState int }

func (otherField) Error() string { return "another thing" }

func TestIsConflict(t *testing.T) {
	general := [5]byte([]byte("HY000"))
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"nil":                   {nil, false},
		"serialization failure": {methodState("40001"), true},
		"deadlock, PostgreSQL":  {methodState("40P01"), true},
		"deadlock, MySQL":       {field("40001"), true},
		"group replication":     {field("40000"), true},
		"deadlock at a commit":  {&fieldState{1180, general, "Got error 149 - 'Lock deadlock' during COMMIT"}, true},
		"savepoint gone":        {&fieldState{1030, general, "Got error 153 - 'No savepoint' from storage engine"}, true},
		"engine failure":        {&fieldState{1030, general, "Got error 28 - 'No space left' from storage engine"}, false},
		"failure of a commit":   {&fieldState{1180, general, "Got error 6 - 'No such device' during COMMIT"}, false},
		"unknown outcome":       {methodState("40003"), false},
		"unique violation":      {methodState("23505"), false},
		"lock wait timeout":     {field("HY000"), false},
		"record changed":        {&fieldState{1020, general, ""}, true},
		"another number":        {&fieldState{1205, general, ""}, false},
		"wrapped":               {fmt.Errorf("work: %w", field("40001")), true},
		"joined":                {errors.Join(errors.New("rollback"), methodState("40001")), true},
		"no state":              {errors.New("40001"), false},
		"another field":         {otherField{40001}, false},
		"nil pointer":           {(*fieldState)(nil), false},
		"ended inside the work": {fmt.Errorf("%w: %w", sqlguard.ErrTransactionEnded, field("40001")), false},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, sqlguard.IsConflict(c.err)) })
	}
}

func TestConflictsBeforeTheWorkAreRetriedNotForEver(t *testing.T) {
	guard, err := sqlguard.New(sqlguard.PostgreSQL)
	require.NoError(t, err)
	work := func(context.Context, *sql.Tx) error { t.Error("work ran"); return nil }
	do := func(ctx context.Context, err error) (tries int, got error) {
		f := fencing.Fence{Resource: "a", Token: 7, Mode: fencing.Read}
		got = guard.Do(ctx, reply{err: err, n: &tries}, f, work)
		return tries, got
	}
	synctest.Test(t, func(t *testing.T) {
		tries, err := do(t.Context(), field("40001"))
		require.True(t, sqlguard.IsConflict(err))
		require.Equal(t, 11, tries)

		tries, err = do(t.Context(), field("42000"))
		require.Error(t, err)
		require.Equal(t, 1, tries, "no conflict")

		ended, cancel := context.WithCancel(t.Context())
		cancel()
		tries, err = do(ended, field("40001"))
		require.True(t, sqlguard.IsConflict(err))
		require.Equal(t, 1, tries, "nobody waits any more")
	})
}
