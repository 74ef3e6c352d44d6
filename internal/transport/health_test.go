package transport_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/internal/wire"
	"github.com/seed74116694/fencelock/scripts"
)

// urgentGap is the shortest pause between attempts at a master that fails.
const urgentGap = 20 * time.Millisecond

// inFailing runs a test in fake time with a master whose link is refused, after its first failure.
func inFailing(t *testing.T, test func(t *testing.T, b *bed)) {
	inTunedBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		b.link.Refuse()
		b.link.Cut()
		synctest.Wait()
		require.False(t, b.Failing())
		require.Error(t, b.do(context.Background()))
		require.True(t, b.Failing())
		test(t, b)
	})
}

func TestBackgroundWorkWaitsLongerWithEachFailure(t *testing.T) {
	inFailing(t, func(t *testing.T, b *bed) {
		for failures := range 12 {
			wait, cause := b.Backoff()
			most := min(transport.BackoffMin<<failures, transport.BackoffMax)
			require.Error(t, cause)
			require.GreaterOrEqual(t, wait, most/2)
			require.LessOrEqual(t, wait, most)
			time.Sleep(max(wait, urgentGap))
			_, cause = b.Backoff()
			require.NoError(t, cause)
			require.Error(t, b.do(context.Background()))
		}
	})
}

func TestUrgentAttemptsAreAGapApart(t *testing.T) {
	inFailing(t, func(t *testing.T, b *bed) {
		for range 20 {
			before := b.Dials()
			err := b.do(context.Background())
			require.ErrorIs(t, err, syscall.ECONNREFUSED, "the cause is told")
			require.True(t, transport.DidNotRun(err))
			require.Equal(t, before, b.Dials(), "and nothing was tried")
			time.Sleep(urgentGap)
			require.ErrorIs(t, b.do(context.Background()), syscall.ECONNREFUSED)
			require.Greater(t, b.Dials(), before)
		}
	})
}

func TestWhatWasHeldBackDidNotRunWhateverFailedBefore(t *testing.T) {
	inTunedBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		b.link.DropNextReply(testredis.Named("EVALSHA"))
		broken := b.do(context.Background())
		require.Error(t, broken)
		require.False(t, transport.DidNotRun(broken), "its reply was lost")
		heldBack := b.do(context.Background())
		require.ErrorIs(t, heldBack, broken)
		require.True(t, transport.DidNotRun(heldBack))
	})
}

func TestAnAnswerEndsTheBackoff(t *testing.T) {
	inFailing(t, func(t *testing.T, b *bed) {
		for range 8 { // into a long backoff
			time.Sleep(transport.BackoffMax)
			require.Error(t, b.do(context.Background()))
		}
		b.link.Restore()
		time.Sleep(urgentGap)
		b.mustDo()
		require.False(t, b.Failing())
		_, cause := b.Backoff()
		require.NoError(t, cause)
		b.link.DropNextReply(testredis.Named("EVALSHA"))
		require.Error(t, b.do(context.Background()))
		require.True(t, b.Failing(), "the next failure is the first of another row")
	})
}

// The pipeline waits for a gap since the last attempt. A look does not: a lease may end before its master votes again.
func TestALookLeavesAtOnceWhenTheLinkIsBack(t *testing.T) {
	inFailing(t, func(t *testing.T, b *bed) {
		b.link.Restore()
		time.Sleep(urgentGap)
		begun := time.Now()
		r, _ := b.Do(context.Background(), 0, transport.NewScript(scripts.Inspect, ""), keysOf("any"), wire.Vote{}, nil)
		require.NoError(t, r.Error())
		require.Zero(t, time.Since(begun))
	})
}

func TestOfUrgentAttemptsOneIsUnderWay(t *testing.T) {
	inFailing(t, func(t *testing.T, b *bed) {
		b.link.Restore()
		b.link.Blackhole(testredis.Both)
		time.Sleep(urgentGap)
		begun := time.Now()
		b.tasks.Go(func() { _ = b.do(context.Background()) })
		synctest.Wait()
		require.ErrorIs(t, b.do(context.Background()), syscall.ECONNREFUSED)
		require.Zero(t, time.Since(begun))
		b.tasks.Go(func() { _ = b.do(context.Background()) })
		time.Sleep(2 * time.Second) // the dial has timed out
		synctest.Wait()
		require.Error(t, b.do(context.Background()))
		begun = time.Now()
		require.True(t, transport.DidNotRun(b.do(context.Background())))
		require.Zero(t, time.Since(begun), "the gap is counted from the failure")
	})
}

func TestARefusalIsAnAnswer(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		b.mini.Miniredis().SetError("BUSY a script runs")
		require.ErrorContains(t, b.do(context.Background()), "BUSY")
		require.False(t, b.Failing())
	})
}

func TestTheEndOfACallersContextIsNoFailureOfTheMaster(t *testing.T) {
	inBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		b.mini.Freeze()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		require.ErrorIs(t, b.do(ctx), context.DeadlineExceeded)
		require.False(t, b.Failing())
		b.mini.Thaw()
	})
}

func TestOneBrokenConnectionIsOneFailure(t *testing.T) {
	inTunedBed(t, func(t *testing.T, b *bed) {
		b.mustDo()
		b.mini.Freeze()
		for i := range 50 {
			b.Post(b.call(i, true))
		}
		synctest.Wait()
		b.link.Refuse()
		b.link.Cut()
		synctest.Wait()
		wait, cause := b.Backoff()
		require.Error(t, cause)
		require.LessOrEqual(t, wait, transport.BackoffMin)
		require.False(t, errors.Is(cause, context.Canceled))
	})
}

// What a server says, as it says it.
func TestRefusals(t *testing.T) {
	for text, want := range map[string]struct{ permanent, conflict, cluster bool }{
		"NOAUTH Authentication required.":                                 {permanent: true},
		"WRONGPASS invalid username-password pair":                        {permanent: true},
		"NOPERM User x has no permissions to run the 'evalsha' command":   {permanent: true},
		"ERR ACL failure in script: No permissions to access a key":       {permanent: true},
		"ACL failure in script: No permissions to access a key":           {permanent: true},
		"WRONGTYPE Operation against a key holding the wrong kind":        {permanent: true, conflict: true},
		"ERR hash value is not an integer":                                {permanent: true, conflict: true},
		"ERR unknown command 'EVALSHA'":                                   {permanent: true},
		"ERR DB index is out of range":                                    {permanent: true},
		"ERR SELECT is not allowed in cluster mode":                       {permanent: true},
		"ERR max number of clients reached":                               {},
		"BUSY Redis is busy running a script":                             {},
		"UNKILLABLE Sorry the script already executed write commands":     {},
		"LOADING Redis is loading the dataset in memory":                  {},
		"OOM command not allowed when used memory > 'maxmemory'.":         {},
		"MISCONF Redis is configured to save RDB snapshots":               {},
		"NOREPLICAS Not enough good replicas to write.":                   {},
		"MASTERDOWN Link with MASTER is down":                             {},
		"CLUSTERDOWN The cluster is down":                                 {permanent: true, cluster: true},
		"TRYAGAIN Multiple keys request during rehashing of slot":         {permanent: true, cluster: true},
		"MOVED 3999 127.0.0.1:6381":                                       {permanent: true, cluster: true},
		"ASK 3999 127.0.0.1:6381":                                         {permanent: true, cluster: true},
		"READONLY You can't write against a read only replica. script: x": {permanent: true},
	} {
		t.Run(text, func(t *testing.T) {
			inBed(t, func(t *testing.T, b *bed) {
				b.mustDo()
				b.mini.Miniredis().SetError(text)
				err := b.do(context.Background())
				require.Error(t, err)
				require.True(t, transport.DidNotRun(err))
				require.Equal(t, want.permanent, b.Permanent(err), "permanent")
				require.Equal(t, want.conflict, transport.Conflict(err), "conflict")
				require.Equal(t, want.cluster, transport.FromCluster(err), "of a cluster")
			})
		})
	}
}

// What says that another server is to be asked passes where the client may learn which, and nowhere else.
func TestWhatOneServerRefusesForGoodPassesBehindSentinelAndInACluster(t *testing.T) {
	for _, text := range []string{
		"READONLY You can't write against a read only replica.", "MOVED 3999 127.0.0.1:6381", "ASK 3999 127.0.0.1:6381",
		"TRYAGAIN Multiple keys request during rehashing of slot", "CLUSTERDOWN Hash slot not served",
	} {
		for mode, permanent := range map[rueidis.ClientMode]bool{
			rueidis.ClientModeStandalone: true, rueidis.ClientModeSentinel: false, rueidis.ClientModeCluster: false,
		} {
			inBedOf(t, ofMode(mode), func(t *testing.T, b *bed) {
				b.mustDo()
				b.mini.Miniredis().SetError(text)
				err := b.do(context.Background())
				require.Equal(t, permanent, b.Permanent(err), "%s, %s", text, mode)
				require.Equal(t, permanent, b.Standalone)
				advised := strings.Contains(b.Explain(err).Error(), "InitAddress")
				require.Equal(t, permanent && transport.FromCluster(err), advised, "%s, %s", text, mode)
				require.ErrorIs(t, b.Explain(err), err)
			})
		}
	}
}

func TestFailuresToReachAServer(t *testing.T) {
	dialled := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	for name, test := range map[string]struct {
		err       error
		didNotRun bool
		permanent bool
	}{
		"refused":                 {dialled, true, false},
		"its name is unknown":     {&net.OpError{Op: "dial", Err: &net.DNSError{Name: "x"}}, true, false},
		"the connection broke":    {io.EOF, false, false},
		"a read failed":           {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, false, false},
		"no reply":                {&transport.NoReply{After: 1}, false, false},
		"closed":                  {rueidis.ErrClosing, false, true},
		"no password in a dial":   {errors.New("NOAUTH Authentication required."), false, true},
		"another password needed": {errors.New("WRONGPASS invalid"), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBedOf(t, brokenBy(test.err), func(t *testing.T, b *bed) {
				err := b.do(context.Background())
				require.ErrorIs(t, err, test.err)
				require.Equal(t, test.didNotRun, transport.DidNotRun(err))
				require.Equal(t, test.permanent, b.Permanent(err))
				heldBack := b.do(context.Background())
				require.ErrorIs(t, heldBack, test.err)
				require.True(t, transport.DidNotRun(heldBack))
				require.Equal(t, test.permanent, b.Permanent(heldBack), "the cause is the same")
				require.False(t, transport.Conflict(err) || transport.FromCluster(err))
			})
		})
	}
	require.False(t, transport.Conflict(nil))
}

func TestAConnectionOnWhichNoAnswerCameInTime(t *testing.T) {
	for op, ran := range map[string]bool{"read": true, "write": true, "dial": false} {
		cause := &net.OpError{Op: op, Net: "tcp", Err: os.ErrDeadlineExceeded}
		inBedOf(t, brokenBy(cause), func(t *testing.T, b *bed) {
			err := b.do(context.Background())
			require.Equal(t, ran, errors.As(err, new(*transport.NoReply)))
			require.Equal(t, !ran, transport.DidNotRun(err))
		})
	}
}
