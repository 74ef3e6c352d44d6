package fencing_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/fencing/redisguard"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

func TestContextInnermostWins(t *testing.T) {
	outer := fencing.NewContext(t.Context(), write("a", 9))
	outer = fencing.NewContext(outer, read("b", 2))
	inner := fencing.NewContext(outer, read("a", 3))

	got, ok := fencing.FromContext(inner, "a")
	require.True(t, ok)
	require.Equal(t, read("a", 3), got)
	_, ok = fencing.FromContext(inner, "c")
	require.False(t, ok)
	require.Equal(t,
		[]fencing.Fence{read("a", 3), read("b", 2)},
		slices.Collect(fencing.All(inner)))

	require.Equal(t,
		[]fencing.Fence{read("b", 2), write("a", 9)},
		slices.Collect(fencing.All(outer)), "the outer context stays as it was")
}

func TestAllStops(t *testing.T) {
	ctx := fencing.NewContext(t.Context(), read("a", 1))
	ctx = fencing.NewContext(ctx, read("b", 2))
	for f := range fencing.All(ctx) {
		require.Equal(t, "b", f.Resource)
		break
	}
}

func TestMaxAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := fencing.Token(time.Now().UnixMicro())
		const minute = 60_000_000
		limit := []fencing.ExtractOption{fencing.MaxAhead(time.Minute)}
		for name, tt := range map[string]struct {
			token   fencing.Token
			limits  []fencing.ExtractOption
			refused bool
		}{
			"no limit":              {fencing.MaxToken, nil, false},
			"the greatest":          {fencing.MaxToken, limit, true},
			"just beyond":           {now + minute + 1, limit, true},
			"tomorrow":              {now + 24*60*minute, limit, true},
			"at the limit":          {now + minute, limit, false},
			"now":                   {now, []fencing.ExtractOption{fencing.MaxAhead(0)}, false},
			"ahead of a zero limit": {now + 1, []fencing.ExtractOption{fencing.MaxAhead(0)}, true},
			"long ago":              {now - minute, limit, false},
			"a lock counts from 1":  {1, limit, false},
		} {
			header := make(http.Header)
			header.Add(fencing.HeaderName, fencing.FormatHeader(write("stock", now)))
			header.Add(fencing.HeaderName, fencing.FormatHeader(write("orders", tt.token)))
			ctx, err := fencing.Extract(t.Context(), header, tt.limits...)
			if !tt.refused {
				require.NoError(t, err, name)
				continue
			}
			require.ErrorIs(t, err, fencing.ErrMalformed, name)
			require.ErrorContains(t, err, `for "orders" it is `, name)
			require.Equal(t, name == "tomorrow", strings.HasSuffix(err.Error(),
				`malformed token "`+tt.token.String()+`": for "orders" it is 24h0m0s ahead of the clock here, the limit is 1m0s`))
			require.Equal(t, t.Context(), ctx, name)
		}
	})
}

// dated is a source with a deadline, as a lease is.
type dated struct {
	fence    fencing.Fence
	deadline time.Time
}

func (d *dated) Fence() fencing.Fence { return d.fence }

func (d *dated) Deadline() time.Time { return d.deadline }

func TestDeadlineIsThatOfTheInnermostSource(t *testing.T) {
	_, ok := fencing.Deadline(t.Context(), "a")
	require.False(t, ok, "no fence")

	lease := &dated{fencing.Fence{Resource: "a", Token: 1, Mode: fencing.Write}, time.Unix(100, 0)}
	ctx := fencing.NewSourceContext(t.Context(), lease)
	lease.deadline = time.Unix(200, 0) // renewed
	got, ok := fencing.Deadline(ctx, "a")
	require.True(t, ok)
	require.Equal(t, time.Unix(200, 0), got)
	_, ok = fencing.Deadline(ctx, "b")
	require.False(t, ok, "a fence of another resource")

	_, ok = fencing.Deadline(fencing.NewContext(ctx, lease.fence), "a")
	require.False(t, ok, "the inner fence has no deadline, and hides the outer one")
}

// An access inside one of the same resource would wait for itself; in the bubble that would be a deadlock.
func TestAccessInsideItselfIsRefused(t *testing.T) {
	for _, outer := range []fencing.Mode{fencing.Read, fencing.Write} {
		for _, inner := range []fencing.Mode{fencing.Read, fencing.Write} {
			t.Run(outer.String()+" "+inner.String(), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var w, other fencing.Watermark
					f := fencing.Fence{Resource: "a", Token: 5, Mode: inner}
					both := []fencing.Fence{write("b", 5), {Resource: "a", Token: 5, Mode: outer}}
					var over context.Context
					require.NoError(t, w.DoAll(t.Context(), both, func(ctx context.Context) error {
						over = ctx
						require.NoError(t, other.Do(ctx, f, nothing), "another Watermark")
						return w.Do(ctx, write("c", 5), func(ctx context.Context) error {
							for _, err := range []error{
								w.Do(ctx, f, nothing),
								w.Derive(context.WithoutCancel(ctx), f, nothing),
								w.Do(ctx, write("b", 5), nothing),
								w.DoAll(ctx, []fencing.Fence{write("d", 5), f}, nothing),
								w.Reset(ctx, write("c", 5)),
							} {
								require.ErrorIs(t, err, fencing.ErrNested)
								require.ErrorContains(t, err, "token 5")
							}
							return nil
						})
					}))
					require.NoError(t, w.Do(over, f, nothing), "the access is over")
				})
			})
		}
	}
}

// A nil option is the mistake of whoever runs the service, and never of the one who called it.
func TestExtractRefusesANilOption(t *testing.T) {
	carrier := fencing.MapCarrier{}
	carrier.Add(fencing.HeaderName, fencing.FormatHeader(fencing.Fence{Resource: "a", Token: 1, Mode: fencing.Read}))
	ctx, err := fencing.Extract(t.Context(), carrier, nil)
	require.ErrorContains(t, err, "option")
	require.NotErrorIs(t, err, fencing.ErrMalformed)
	require.Equal(t, t.Context(), ctx)
}

func TestModeText(t *testing.T) {
	for mode, text := range map[fencing.Mode]string{0: "none", fencing.Read: "read", fencing.Write: "write"} {
		require.Equal(t, text, mode.String())
		encoded, err := json.Marshal(mode)
		require.NoError(t, err)
		require.Equal(t, `"`+text+`"`, string(encoded))
		decoded := fencing.Mode(9)
		require.NoError(t, json.Unmarshal(encoded, &decoded))
		require.Equal(t, mode, decoded)
	}
}

func TestModeRefuses(t *testing.T) {
	for _, text := range []string{"", "READ", "read ", "exclusive"} {
		kept := fencing.Write
		require.ErrorIs(t, kept.UnmarshalText([]byte(text)), fencing.ErrMalformed, text)
		require.Equal(t, fencing.Write, kept)
	}

	require.Equal(t, "Mode(9)", fencing.Mode(9).String())
	_, err := fencing.Mode(9).MarshalText()
	require.ErrorIs(t, err, fencing.ErrMalformed)
}

// A proxy copies the header of the request, in which the sender may have written the fence in another way.
func TestInjectBesideWhatAProxyHasCopied(t *testing.T) {
	fence := write("orders/4 2", 17)
	for name, values := range map[string][]string{
		"canonical":           {fencing.FormatHeader(fence)},
		"another encoding":    {`"17";lock="orders%2f4%202";mode=write`},
		"nothing encoded":     {`"17";lock="orders/4 2";mode=write`},
		"spaces":              {`"17"; lock="orders/4%202"; mode=write`},
		"another order":       {`"17";mode=write;lock="orders/4%202"`},
		"padded":              {`"00000000000000000017";lock="orders/4%202";mode=write`},
		"joined with another": {`"3";lock="stock";mode=read, "17";lock="orders%2F4%202";mode=write`},
		"beside an empty one": {"", `"17";lock="orders%2F4%202";mode=write`},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{fencing.HeaderName: values}
			ctx, err := fencing.Extract(t.Context(), header)
			require.NoError(t, err)
			sent := header.Clone()
			fencing.Inject(ctx, sent)
			require.Equal(t, header, sent, "nothing is added")
			there, err := fencing.Extract(t.Context(), sent)
			require.NoError(t, err)
			require.Equal(t, slices.Collect(fencing.All(ctx)), slices.Collect(fencing.All(there)))
		})
	}
}

func TestInjectAddsToWhatItCannotRead(t *testing.T) {
	ctx := fencing.NewContext(t.Context(), write("a", 17))
	for name, value := range map[string]string{
		"malformed":     `17`,
		"another token": `"18";lock="a";mode=write`,
		"another mode":  `"17";lock="a";mode=read`,
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{fencing.HeaderName: {value}}
			fencing.Inject(ctx, header)
			require.Equal(t, []string{value, `"17";lock="a";mode=write`}, header.Values(fencing.HeaderName))
			_, err := fencing.Extract(t.Context(), header)
			require.ErrorIs(t, err, fencing.ErrMalformed, "the receiver does not choose")
		})
	}
}

func TestResetAfterATokenFromTheFuture(t *testing.T) {
	var w fencing.Watermark
	require.NoError(t, w.Claim(write("a", fencing.MaxToken)))
	require.NoError(t, w.Claim(read("a", fencing.MaxToken)))
	require.NoError(t, w.Claim(write("b", 99)))
	require.ErrorIs(t, w.Claim(write("a", 20)), fencing.ErrStale, "every holder is refused")

	require.NoError(t, w.Reset(t.Context(), write("a", 20)))
	requireSeen(t, &w, "a", 20, 20)
	require.ErrorIs(t, w.Claim(read("a", 19)), fencing.ErrStale, "what is older than the repair stays out")
	require.ErrorIs(t, w.Claim(write("a", 19)), fencing.ErrStale)
	require.NoError(t, w.Claim(write("a", 21)))
	requireSeen(t, &w, "b", 0, 99)
}

func TestResetRefusesWhatIsNoWritersFence(t *testing.T) {
	var w fencing.Watermark
	require.NoError(t, w.Claim(write("a", 10)))
	require.ErrorIs(t, w.Reset(t.Context(), read("a", 9)), fencing.ErrMalformed)
	require.ErrorIs(t, w.Reset(t.Context(), fencing.Fence{Resource: "a", Token: 9}), fencing.ErrMalformed)
	require.ErrorIs(t, w.Reset(t.Context(), write("a", 0)), fencing.ErrMissing)
	require.ErrorIs(t, w.Reset(t.Context(), write("a", fencing.MaxToken+1)), fencing.ErrMalformed)
	requireSeen(t, &w, "a", 0, 10)
}

// The command of docs/fencing.md, "A token from the far future".
func TestResetOfARegisterInRedis(t *testing.T) {
	server := testredis.NewMini(t)
	client := server.Client(t)
	guard, err := redisguard.New(client)
	require.NoError(t, err)
	const key = "order:{42}:state"
	require.NoError(t, guard.Claim(t.Context(), write("orders/42", fencing.MaxToken), key))
	require.NoError(t, guard.Claim(t.Context(), read("orders/42", fencing.MaxToken), key))

	const repair = fencing.Token(1763712345678901)
	command := strings.Fields("HSET fencing:{42}:orders/42 r 1763712345678901 w 1763712345678901")
	require.NoError(t, client.Do(t.Context(), client.B().Arbitrary(command...).Build()).Error())
	seen, err := guard.Seen(t.Context(), "orders/42", key)
	require.NoError(t, err)
	require.Equal(t, fencing.Registers{MaxRead: repair, MaxWrite: repair}, seen)
	require.ErrorIs(t, guard.Claim(t.Context(), write("orders/42", repair-1), key), fencing.ErrStale)
	require.NoError(t, guard.Claim(t.Context(), write("orders/42", repair+1), key))
}

// codeLink is how a page names the example, the test or the recipe that runs its code.
var codeLink = regexp.MustCompile(`\[(\w+)\]\((\.\./[^)]*\.go)\)`)

// Each example that a page names exists. That the code of the page itself compiles is tested in tools/commands.
func TestExamplesOfThePagesExist(t *testing.T) {
	// A downloaded module is without the nested ones, whose examples are on the pages.
	if _, err := os.Stat("../go.work"); os.IsNotExist(err) {
		_, err := os.Stat("../.git")
		require.Error(t, err, "a clone has the nested modules")
		t.Skip("no ../go.work: run it in a clone of the repository")
	}
	pages, err := filepath.Glob("../docs/*.md")
	require.NoError(t, err)
	links := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, link := range codeLink.FindAllStringSubmatch(string(text), -1) {
			file, err := os.ReadFile(filepath.Join(filepath.Dir(page), link[2]))
			require.NoError(t, err)
			require.Regexp(t, `func (\([^)]*\) )?`+link[1]+`[(\[]`, string(file), link[0])
			links++
		}
	}
	require.Greater(t, links, 30)
}
