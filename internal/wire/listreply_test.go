package wire_test

import (
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/wire"
)

func TestRefreshReply(t *testing.T) {
	got, err := wire.ReadRefresh(reply(us, 20, 0, 0, 0, 0, 1, us+1, 3000, 2, 0, 0), 3)
	require.NoError(t, err)
	require.Equal(t, wire.RefreshReply{
		Micros: us, Left: 20 * time.Millisecond, Waiters: []wire.RefreshedWaiter{
			{Status: wire.Queued}, {Status: wire.Granted, Token: us + 1, Left: 3 * time.Second}, {Status: wire.Absent},
		},
	}, got)
	for sum, want := range []wire.RefreshReply{
		{More: wire.NoMore},
		{More: wire.MoreAdmits},
		{More: wire.MoreReads},
		{},
	} {
		got, err := wire.ReadRefresh(reply(us, 0, sum), 0)
		require.Equal(t, sum == 3, err != nil, "%d", sum)
		want.Micros = got.Micros
		require.Equal(t, want, got, "%d", sum)
	}
	for name, r := range map[string]rueidis.RedisResult{
		"short": reply(us, 0, 0, 1, us), "long": reply(us, 0, 0, 0, 0, 0, 0), "unknown": reply(us, 0, 0, 3, 0, 0),
		"grant without a token": reply(us, 0, 0, 1, 0, 3000), "grant without time": reply(us, 0, 0, 1, us, 0),
		"more": reply(us, 0, 8, 0, 0, 0), "negative more": reply(us, 0, -1, 0, 0, 0), "wake": reply(us, -1, 0, 0, 0, 0),
		"text": reply(us, 0, 0, "1", us, 3000), "refused": result(refusal("NOPERM no")),
	} {
		got, err := wire.ReadRefresh(r, 1)
		require.Error(t, err, name)
		require.Zero(t, got, name)
	}
	_, err = wire.ReadRefresh(reply(us, 0, 0, 1, int(fencing.MaxToken)+1, 3000), 1)
	require.ErrorIs(t, err, wire.ErrCounter)
}

func TestInspectReply(t *testing.T) {
	holder := []any{hold, hold, "w", "channel", 2, 1000, -5, us, "meta of it", 1}
	waiter := []any{other, "owner", "r", "channel", 7, "its meta", "q", 3, "of a later version"}
	broken := []any{other, "owner", "r", "channel", 1, 0, 0, us - 1, "", 0, 1}
	got, err := wire.ReadInspect(reply(us, "w", us+1, []any{holder, broken}, []any{waiter}))
	require.NoError(t, err)
	require.Equal(t, wire.InspectReply{
		Micros: us, Token: us + 1,
		Holders: []wire.Holder{{
			Hold: hold, Owner: hold, Mode: fencing.Write, Count: 2, Remaining: time.Second, Meta: "meta of it", Shared: true,
			Token: us,
		}, {
			Hold: other, Owner: "owner", Mode: fencing.Read, Count: 1, Token: us - 1, Broken: true,
		}},
		Waiters: []wire.Waiter{{
			Hold: other, Owner: "owner", Mode: fencing.Read, Waited: 7 * time.Millisecond, Meta: "its meta",
		}},
	}, got)
	got, err = wire.ReadInspect(reply(us, "", 0, []any{[]any{1, nil}, 7}, []any{[]any{other}}))
	require.NoError(t, err)
	require.Equal(t, wire.InspectReply{
		Micros: us, Holders: []wire.Holder{{}, {}}, Waiters: []wire.Waiter{{Hold: other}},
	}, got, "what can be read of foreign rows")
	for name, r := range map[string]rueidis.RedisResult{
		"short": reply(us, "", 0, []any{}), "long": reply(us, "", 0, []any{}, []any{}, 1), "no rows": reply(us, "", 0, 1, 2),
		"counter": reply(us, "", "x", []any{}, []any{}), "refused": result(refusal("WRONGTYPE no")),
	} {
		got, err := wire.ReadInspect(r)
		require.Error(t, err, name)
		require.Zero(t, got, name)
	}
}

func FuzzListReplies(f *testing.F) {
	for _, text := range []string{
		`[1700000000000000,1,2,0,3]`, `[1700000000000000,20,6,1,1700000000000001,3000]`, `[1,1700000000000000,2]`,
		`[1700000000000000,"w",7,[["h","o","w","c",1,5,6,7,"m",0]],[["h","o","r","c",5,"m","q",1]]]`, `[0,0,0]`, `[null]`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, value, ok := fromJSON(text)
		if !ok {
			return
		}
		list, _ := value.([]any)
		if got, err := wire.ReadRenew(r, max(len(list)-1, 0)); len(list) > 0 && err == nil {
			for i, renewed := range got.Renewed {
				status, _ := integer(value, 1+i)
				require.Equal(t, status == 1 || status == 2, renewed.OK())
			}
		}
		if got, err := wire.ReadRefresh(r, max(len(list)-3, 0)/3); err == nil {
			for i, waiter := range got.Waiters {
				status, _ := integer(value, 3+3*i)
				require.Equal(t, status == 1, waiter.Status == wire.Granted)
				require.True(t, waiter.Status != wire.Granted || waiter.Token > 0 && waiter.Left > 0)
			}
		}
		if got, err := wire.ReadRelease(r); err == nil {
			status, _ := integer(value, 0)
			require.Equal(t, status == 1, got.Was == wire.WasGranted)
		}
		if got, err := wire.ReadInspect(r); err == nil {
			for _, h := range got.Holders {
				require.GreaterOrEqual(t, min(h.Remaining, h.Held), time.Duration(0))
			}
		}
	})
}
