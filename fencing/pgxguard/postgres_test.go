package pgxguard_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/testpostgres"
)

// postgres is the server of this run of tests.
var postgres testpostgres.Server

func TestMain(m *testing.M) { goleak.VerifyTestMain(suite{m}) }

type suite struct{ *testing.M }

func (s suite) Run() int {
	defer postgres.Stop()
	return s.M.Run()
}

// connect opens a pool until the test ends, which requires that each connection has been given back.
func connect(t *testing.T, dsn string, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.ConnConfig.DefaultQueryExecMode = mode
	config.MaxConns = 8
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		given := func() bool { return pool.Stat().AcquiredConns() == 0 } // a closed one is given back in the background
		require.Eventually(t, given, time.Minute, time.Millisecond)
		pool.Close()
	})
	return pool
}
