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

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

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
			synctest.Test(t, func(t *testing.T) {
				mini := testredis.NewMini(t)
				b := newBed(t, mini.Client(t))
				b.mustDo()
				mini.Miniredis().SetError(text)
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
			synctest.Test(t, func(t *testing.T) {
				mini := testredis.NewMini(t)
				b := newBed(t, &modeClient{mini.Client(t), mode})
				b.mustDo()
				mini.Miniredis().SetError(text)
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
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, &brokenClient{testredis.NewMini(t).Client(t), test.err})
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
		synctest.Test(t, func(t *testing.T) {
			cause := &net.OpError{Op: op, Net: "tcp", Err: os.ErrDeadlineExceeded}
			b := newBed(t, &brokenClient{testredis.NewMini(t).Client(t), cause})
			err := b.do(context.Background())
			require.Equal(t, ran, errors.As(err, new(*transport.NoReply)))
			require.Equal(t, !ran, transport.DidNotRun(err))
		})
	}
}

func TestTheRefusalOfADialIsOneWhenHeldBackToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		client := mini.Client(t)
		mini.Miniredis().SetError("NOPERM this user has no permissions to run the 'hello' command")
		refusal := client.Do(context.Background(), client.B().Ping().Build()).Error()
		require.Error(t, refusal)
		b := newBed(t, &brokenClient{client, refusal})
		for range 2 {
			err := b.do(context.Background())
			require.True(t, b.Permanent(err))
			require.True(t, transport.DidNotRun(err))
			require.NotContains(t, err.Error(), "not retried yet", "it never is")
		}
	})
}
