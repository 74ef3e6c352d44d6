package sqltest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/sqlguard"
	"github.com/seed74116694/fencelock/fencing/sqlguard/sqltest"
)

// process is one of those that increment balances. It takes a lock for a session,
// and never looks whether its lease still lives: the store has to.
type process struct {
	bank       bank
	db         *sql.DB
	locker     locker
	stalls     *stalls
	stallEvery int
	begun      *atomic.Int64
	got        *outcome
}

// session takes the lock of an account, reads the balance and increments it some
// times. A refusal ends it; whoever has the lock now goes on from what is stored.
func (p *process) session(ctx context.Context) error {
	id := rand.IntN(accounts)
	held, err := p.locker.lock(ctx, fmt.Sprint("accounts/", id))
	if err != nil {
		return err
	}
	defer held.unlock()

	balance, err := p.bank.read(ctx, p.db, id, held.fence())
	if err != nil {
		return unlessLost(held, err)
	}
	p.stalls.atWork(held.fence())
	stale := false
	for range session {
		if p.begun.Add(1) > increments {
			p.begun.Add(-1)
			return nil
		}
		if rand.IntN(p.stallEvery) == 0 {
			switch p.stalls.stall(held.fence(), held.pause) {
			case ended: // sooner or later somebody claims: neither verdict would be sure
				p.begun.Add(-1)
				return nil
			case overtaken:
				stale = true
			}
		}
		accepted, err := p.increment(ctx, id, balance, held, stale)
		if !accepted {
			p.begun.Add(-1)
			return err
		}
		balance++
	}
	return nil
}

func (p *process) increment(ctx context.Context, id, balance int, held lease, stale bool) (accepted bool, err error) {
	if stale {
		p.got.stale.Add(1)
	}
	err = p.bank.write(ctx, p.db, id, balance+1, held.fence())
	switch {
	case err == nil:
		p.got.accepted[id].Add(1)
		return true, nil
	case stale && errors.Is(err, fencing.ErrStale):
		p.got.refused.Add(1)
		return false, nil
	default:
		return false, unlessLost(held, err)
	}
}

// unlessLost accepts a refusal of a holder that was stalled by the machine instead
// of the test, and by nothing else.
func unlessLost(held lease, err error) error {
	if errors.Is(err, fencing.ErrStale) && held.lost() {
		return nil
	}
	return fmt.Errorf("%v, lost=%t: %w", held.fence(), held.lost(), err)
}

// router sends read-only transactions to a replica, as proxies and some handles do.
type router struct {
	*sql.DB
	replica *sql.DB
}

func (r router) BeginTx(ctx context.Context, opts *sql.TxOptions) (*sql.Tx, error) {
	if opts != nil && opts.ReadOnly {
		return r.replica.BeginTx(ctx, opts)
	}
	return r.DB.BeginTx(ctx, opts)
}

// A second database plays the replica, so that the test decides how far it is behind.
func TestReadOnAReplicaThatLags(t *testing.T) {
	onEveryStore(t, func(t *testing.T, store sqltest.Store, primary *sql.DB, guard *sqlguard.Guard) {
		replica := store.Open(t)
		require.NoError(t, guard.Create(t.Context(), replica))
		db := router{primary, replica}
		require.NoError(t, guard.Do(t.Context(), db, write("a", 10), nothing))

		outdated := func(context.Context, *sql.Tx) error { t.Error("read what is outdated"); return nil }
		require.ErrorIs(t, guard.Do(t.Context(), db, read("a", 11), outdated), sqlguard.ErrClaimNotVisible)

		// The write has arrived, and the claim has not: a later write may be missing just as well.
		require.NoError(t, guard.Claim(t.Context(), replica, write("a", 10)))
		require.ErrorIs(t, guard.Do(t.Context(), db, read("a", 11), outdated), sqlguard.ErrClaimNotVisible)

		require.NoError(t, guard.Claim(t.Context(), replica, read("a", 11)))
		require.NoError(t, guard.Do(t.Context(), db, read("a", 11), nothing))
	})
}
