package transport_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/clock"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
)

// showed is what a server's clock showed in the answer to a request sent at sentAt.
const showed = int64(1_700_000_000_000_000)

var sentAt = clock.Instant{Mono: time.Hour, Wall: time.Duration(showed) * time.Microsecond}

// sampled is a master that nothing runs for, with one sample of its clock.
func sampled() *transport.Master {
	m := transport.NewMaster(&transport.Config{Drift: 0.01}, 0, &modeClient{mode: rueidis.ClientModeStandalone})
	m.Sample("", sentAt, showed)
	return m
}

func atMost(m *transport.Master, now clock.Instant) (micros int64, known bool) {
	return m.MaxServerTime("", m.At(""), "", now)
}

func TestTheMostThatAServersClockShows(t *testing.T) {
	moved := func(mono, wall time.Duration) clock.Instant {
		return clock.Instant{Mono: sentAt.Mono + mono, Wall: sentAt.Wall + wall}
	}
	for name, test := range map[string]struct {
		now  clock.Instant
		most time.Duration // since the sample
	}{
		"at once":                       {sentAt, 0},
		"later":                         {sentAt.Add(time.Second), 1010 * time.Millisecond},
		"the machine was suspended":     {moved(time.Second, time.Hour), time.Hour + time.Hour/100},
		"the wall clock was set back":   {moved(time.Second, -time.Hour), 1010 * time.Millisecond},
		"looked at before it was asked": {sentAt.Add(-time.Millisecond), 0},
	} {
		t.Run(name, func(t *testing.T) {
			most, known := atMost(sampled(), test.now)
			require.True(t, known)
			require.Equal(t, showed+test.most.Microseconds()+1, most)
		})
	}
}

func TestTheLatestSampleCounts(t *testing.T) {
	m := transport.NewMaster(&transport.Config{Drift: 0.01}, 0, &modeClient{mode: rueidis.ClientModeStandalone})
	_, known := atMost(m, sentAt)
	require.False(t, known)
	m.Sample("", sentAt, 0)
	_, known = atMost(m, sentAt)
	require.False(t, known, "the script did not read the clock")

	m.Sample("", sentAt, showed)
	m.Sample("", sentAt.Add(time.Millisecond), 0)
	m.Sample("", sentAt.Add(-time.Second), showed+5_000_000) // an answer that was overtaken
	most, _ := atMost(m, sentAt)
	require.Equal(t, showed+1, most)
	m.Sample("", sentAt.Add(time.Second), showed-5_000_000) // the server's clock was set back
	most, _ = atMost(m, sentAt.Add(time.Second))
	require.Equal(t, showed-5_000_000+1, most)
}

func TestALostSubscriptionMeansThatAnotherServerMayAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := testredis.NewMini(t).NewLink()
		b := newBed(t, link.Client(t))
		b.Listen("")
		<-b.listens
		b.mustDo()
		_, known := b.MaxServerTime(b.now())
		require.True(t, known)
		before := b.now()
		time.Sleep(time.Millisecond)
		link.Cut()
		synctest.Wait()
		_, known = b.MaxServerTime(b.now())
		require.False(t, known)
		b.Sample("", before, showed) // a late answer to a request of before
		_, known = b.MaxServerTime(b.now())
		require.False(t, known)
		<-b.listens
		b.mustDo()
		_, known = b.MaxServerTime(b.now())
		require.True(t, known)
	})
}

// Replicas pass messages on, and so does a master that became one without its subscribers' knowing. So where another
// server can take the master's place, a message says which process has sent it.
func TestAMessageOfAnotherProcessTellsNothingOfTheClock(t *testing.T) {
	for _, binary := range testredis.Binaries() {
		server, replica := testredis.StartBinary(t, binary), testredis.StartBinary(t, binary)
		b := newBed(t, &modeClient{dial(t, server.Option()), rueidis.ClientModeSentinel})
		b.Listen("")
		<-b.listens
		b.mustDo()
		name := func(s *testredis.Server) string {
			reply, err := s.Command("EVAL", "return string.sub(redis.sha1hex(tostring(redis)), 1, 12)", "0")
			require.NoError(t, err)
			return reply.(string)
		}
		_, known := b.Master.MaxServerTime("", b.home(), name(server), b.now())
		require.True(t, known)
		for _, other := range []string{name(replica), ""} {
			_, known = b.Master.MaxServerTime("", b.home(), other, b.now())
			require.False(t, known)
		}
		_, known = b.Master.MaxServerTime("", nil, name(server), b.now())
		require.False(t, known, "from nobody knows which node")
	}
}
