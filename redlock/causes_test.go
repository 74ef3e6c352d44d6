package redlock_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

// What keeps a master from voting is told apart by type: it did not answer in time, or it abstains.
func TestCausesOfMissingVotesHaveTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Second
		s := newSet(t, 3)
		var log bytes.Buffer
		p := s.peer(time.Millisecond, rwlock.WithTTL(ttl), rwlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		p.warm(t)
		time.Sleep(ttl / 10) // all masters have answered the release: one that is sent again finds the empty master
		s.minis[0].Crash()
		s.minis[0].Recover()
		time.Sleep(ttl / 10)
		synctest.Wait()
		require.NotContains(t, log.String(), "abstains")
		for range 3 {
			p.warm(t) // it is found to be empty, and looked at again
			time.Sleep(ttl / 20)
		}
		synctest.Wait()
		require.Equal(t, 1, strings.Count(log.String(), "abstains\" master=mini-0:6379"), log.String())
		p.links[1].Hold(testredis.Both)
		_, err := p.TryLock(t.Context(), "x")
		require.ErrorIs(t, err, rwlock.ErrNoQuorum)
		var abstains *rwlock.AbstainError
		require.ErrorAs(t, err, &abstains)
		require.Positive(t, abstains.For)
		require.LessOrEqual(t, abstains.For, ttl)
		var late *rwlock.NoReplyError
		require.ErrorAs(t, err, &late)
		require.Positive(t, late.After)
		require.LessOrEqual(t, late.After, time.Second)
		p.links[1].Restore()
	})
}

// A loss names each master that did not renew the lease, and its cause; so does a release that is not confirmed.
func TestLossAndReleaseNameEveryMasterThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		p := s.peer(time.Millisecond, rwlock.WithTTL(10*time.Second), rwlock.WithLogger(logger))
		p.warm(t)
		lease, err := p.Lock(t.Context(), "x")
		require.NoError(t, err)
		other, err := p.Lock(t.Context(), "y")
		require.NoError(t, err)
		s.minis[0].Stop()
		p.links[1].Hold(testredis.Both)
		requireEach := func(causes []error, in string) {
			require.Len(t, causes, 2)
			for i, cause := range causes {
				node, ok := errors.AsType[*rwlock.NodeError](cause)
				require.True(t, ok)
				require.Equal(t, i, node.Index)
				require.NotEmpty(t, node.Addr)
				require.Contains(t, in, node.Error())
			}
		}
		unconfirmed, ok := errors.AsType[*rwlock.QuorumError](other.Release(t.Context()))
		require.True(t, ok)
		synctest.Wait()
		require.Contains(t, log.String(), "release not confirmed")
		requireEach([]error{&unconfirmed.Nodes[0], &unconfirmed.Nodes[1]}, log.String())
		<-lease.Done()
		lost, ok := errors.AsType[*rwlock.LostError](lease.Err())
		require.True(t, ok)
		require.Equal(t, rwlock.NoQuorum, lost.Reason)
		several, ok := lost.Err.(interface{ Unwrap() []error })
		require.True(t, ok, "%v", lost.Err)
		requireEach(several.Unwrap(), lost.Error())
		s.minis[0].Recover()
		p.links[1].Restore()
	})
}

// A minority that does not renew costs no lease, so nothing but the log tells of it.
func TestAMinorityThatDoesNotRenewIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := newSet(t, 3)
		logger := slog.New(slog.NewTextHandler(&log, nil))
		p := s.peer(time.Millisecond, rwlock.WithTTL(3*time.Second), rwlock.WithLogger(logger))
		p.warm(t)
		for _, name := range []string{"x", "y"} {
			lease, err := p.Lock(t.Context(), name)
			require.NoError(t, err)
			defer func() { require.NoError(t, lease.Release(t.Context())) }()
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Empty(t, log.String())
		s.minis[2].Stop()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Regexp(t, `does not renew leases.* master=mini-2:6379 leases=2 `, log.String())
		require.Less(t, strings.Count(log.String(), "does not renew"), 6, "at growing intervals")
		s.minis[2].Recover()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		log.Reset()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Empty(t, log.String())
	})
}

// A master that was down when the lock was taken has its own cause.
func TestALossNamesTheMasterThatWasDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		p := s.peer(time.Millisecond, rwlock.WithTTL(10*time.Second))
		p.warm(t)
		s.minis[1].Stop()
		lease, err := p.Lock(t.Context(), "x")
		require.NoError(t, err)
		p.links[0].Hold(testredis.Both)
		<-lease.Done()
		require.ErrorContains(t, lease.Err(), "; mini-1:6379: ")
		require.NotContains(t, lease.Err().Error(), "does not have the hold")
		p.links[0].Restore()
		s.minis[1].Recover()
	})
}

// A master that has forgotten the hold is part of the reason for a loss, beside the one that did not answer.
func TestALossNamesTheMasterThatHasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSet(t, 3)
		p := s.peer(time.Millisecond, rwlock.WithTTL(10*time.Second))
		p.warm(t)
		lease, err := p.Lock(t.Context(), "x")
		require.NoError(t, err)
		s.minis[1].Crash()
		s.minis[1].Recover()
		time.Sleep(5 * time.Second) // renewed by the others; it is in its quarantine
		require.NoError(t, lease.Err())
		p.links[0].Hold(testredis.Both)
		<-lease.Done()
		require.Regexp(t, `mini-0:6379: .*; mini-1:6379: (does not have the hold|abstains .*)$`, lease.Err().Error())
		p.links[0].Restore()
	})
}
