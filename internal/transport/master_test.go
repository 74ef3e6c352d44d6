package transport_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/transport"
)

// several makes the master one of several.
func several(cfg *transport.Config) { cfg.Quarantine, cfg.MarkerKey = 30*time.Second, "marker" }

func TestTheVoteThatGoesOutWithAScript(t *testing.T) {
	cfg := &transport.Config{}
	require.Equal(t, "0", transport.NewMaster(cfg, 0, &modeClient{}).Vote(5).Arg(), "a single master")

	several(cfg)
	dials := new(atomic.Uint64)
	m := transport.NewMaster(cfg, 0, &tuned{Client: &modeClient{}, dials: dials})
	require.Equal(t, "0000000000000005 ? 30000 0", m.Vote(5).Arg(), "its marker has not been read")
	m.SetIdentity("set:run", m.Dials())
	require.Equal(t, "0000000000000005 set:run 30000 0", m.Vote(5).Arg())
	dials.Add(1)
	require.Equal(t, "0000000000000005 ? 30000 0", m.Vote(5).Arg(), "another server may be at the other end")
	m.SetIdentity("set:run", m.Dials())
	require.Equal(t, "0000000000000005 set:run 30000 0", m.Vote(5).Arg())

	m = transport.NewMaster(cfg, 0, &modeClient{})
	m.SetIdentity("set:run", 0)
	require.Equal(t, "0000000000000005 set:run 30000 1", m.Vote(5).Arg(),
		"a client that tells nothing: the script looks at the run id")
}

func TestAnAnswerOverANewConnectionIsNoVote(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*transport.Config)
		kept   bool
	}{
		"one of several": {several, false},
		"a single one":   {func(*transport.Config) {}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inTunedBed(t, func(t *testing.T, b *bed) {
				b.mustDo()
				b.SetIdentity("set:run", b.Dials())
				b.link.Delay(time.Millisecond)
				b.Post(b.call(0, false))
				synctest.Wait()
				b.client.dials.Add(1)
				b.SetIdentity("set:run", b.Dials())
				time.Sleep(100 * time.Microsecond) // else both answers come in one moment, in any order
				b.Post(b.call(1, false))
				time.Sleep(time.Second)
				synctest.Wait()
				all := b.take()
				require.Equal(t, test.kept, all[0].err == nil)
				require.NoError(t, all[1].err)
				require.False(t, b.Failing(), "the server has answered")
			}, test.change)
		})
	}
}

func TestAScriptThatIsSentWholeLooksAtTheRunID(t *testing.T) {
	inTunedBed(t, func(t *testing.T, b *bed) {
		b.SetIdentity("set:run", b.Dials())
		arrived := b.evaluations()
		b.Renew(b.renewal(0, 7, time.Minute))
		synctest.Wait()
		keys := append(keysOf("0"), "marker")
		require.Equal(t, []evaluation{
			{"EVALSHA", keys, []string{"0000000000000000 set:run 30000 0", "60000", "w", hold(0), "0000000000000007"}},
			{"EVAL", keys, []string{"0000000000000000 set:run 30000 1", "60000", "w", hold(0), "0000000000000007"}},
		}, arrived())
		b.Do(context.Background(), 0, refresh, keys, b.Vote(5), nil)
		synctest.Wait()
		require.Equal(t, "0000000000000005 set:run 30000 1", arrived()[1].args[0])
	}, several)
}
