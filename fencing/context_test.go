package fencing_test

import (
	"context"
	"encoding/json"
	"fmt"
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
	"github.com/seed74116694/fencelock/internal/test/expect"
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

// A mistyped name is the usual reason.
func TestRequireNamesWhatThereIs(t *testing.T) {
	ctx := t.Context()
	for names, says := range map[string]string{
		"": `fencing: no token for "account:42"`, "account:43": `"account:42"; the context has that of "account:43"`,
		"a b c": `; the context has that of "c", "b", "a"`, "a b c d e f g": `of "g", "f", "e", "d", "c" and 2 more`,
	} {
		some := ctx
		for _, name := range strings.Fields(names) {
			some = fencing.NewContext(some, write(name, 1))
		}
		_, err := fencing.Require(some, "account:42")
		require.ErrorIs(t, err, fencing.ErrMissing)
		require.True(t, strings.HasSuffix(err.Error(), says), err)
	}
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
		encoded := expect.NoError(json.Marshal(mode)).In(t)
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
			ctx := expect.NoError(fencing.Extract(t.Context(), header)).In(t)
			sent := header.Clone()
			require.NoError(t, fencing.Inject(ctx, sent))
			require.Equal(t, header, sent, "nothing is added")
			there := expect.NoError(fencing.Extract(t.Context(), sent)).In(t)
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
			require.ErrorIs(t, fencing.Inject(ctx, header), fencing.ErrMalformed)
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
	guard := expect.NoError(redisguard.New(client)).In(t)
	const key = "order:{42}:state"
	require.NoError(t, guard.Claim(t.Context(), write("orders/42", fencing.MaxToken), key))
	require.NoError(t, guard.Claim(t.Context(), read("orders/42", fencing.MaxToken), key))

	const repair = fencing.Token(1763712345678901)
	command := strings.Fields("HSET fencing:{42}:orders/42 r 1763712345678901 w 1763712345678901")
	require.NoError(t, client.Do(t.Context(), client.B().Arbitrary(command...).Build()).Error())
	seen := expect.NoError(guard.Seen(t.Context(), "orders/42", key)).In(t)
	require.Equal(t, fencing.Registers{MaxRead: repair, MaxWrite: repair}, seen)
	require.ErrorIs(t, guard.Claim(t.Context(), write("orders/42", repair-1), key), fencing.ErrStale)
	require.NoError(t, guard.Claim(t.Context(), write("orders/42", repair+1), key))
}

// codeLink is how a page names the example, the test or the recipe that runs its code.
var codeLink = regexp.MustCompile(`\[(\w+)\]\((\.\./[^)]*\.go)\)`)

// Each example, and each function or type of a recipe, that a page names exists. That the code of the page itself
// compiles is tested in lab/tools/commands.
func TestExamplesOfThePagesExist(t *testing.T) {
	// A downloaded module is without the nested ones, whose examples are on the pages.
	if _, err := os.Stat("../go.work"); os.IsNotExist(err) {
		_, err := os.Stat("../.git")
		require.Error(t, err, "a clone has the nested modules")
		t.Skip("no ../go.work: run it in a clone of the repository")
	}
	pages := expect.NoError(filepath.Glob("../docs/*.md")).In(t)
	links := 0
	for _, page := range pages {
		text := expect.NoError(os.ReadFile(page)).In(t)
		for _, link := range codeLink.FindAllStringSubmatch(string(text), -1) {
			file := expect.NoError(os.ReadFile(filepath.Join(filepath.Dir(page), link[2]))).In(t)
			defined := `(func (\([^)]*\) )?|type )` + link[1] + `[(\[ ]`
			require.Regexp(t, defined, string(file), link[0])
			links++
		}
	}
	require.Greater(t, links, 30)
}

func TestFormatHeader(t *testing.T) {
	require.Equal(t, `"1763712345678901";lock="orders/42";mode=write`,
		fencing.FormatHeader(write("orders/42", 1763712345678901)))
	require.Equal(t, `"1";lock="%C3%BC%20%25%22%5C%2C%3B%00";mode=read`,
		fencing.FormatHeader(read("ü %\"\\,;\x00", 1)))
	require.Equal(t, `"1";lock="azAZ09-._~/:%60%7B%40%5B%3F";mode=read`,
		fencing.FormatHeader(read("azAZ09-._~/:`{@[?", 1)))
}

func TestInjectExtract(t *testing.T) {
	fences := []fencing.Fence{
		write("orders/42", 1763712345678901),
		read("{tag}: ü 日本\r\nX-Evil: 1", fencing.MaxToken),
		read(strings.Repeat("\x01", 512), 1),
	}
	ctx := t.Context()
	for _, f := range slices.Backward(fences) {
		ctx = fencing.NewContext(ctx, f)
	}
	joined := make(http.Header) // what an intermediary may make of several values
	for name, carrier := range map[string]fencing.Carrier{
		"http.Header": make(http.Header),
		"MapCarrier":  fencing.MapCarrier{},
	} {
		t.Run(name, func(t *testing.T) {
			require.NoError(t, fencing.Inject(ctx, carrier))
			require.NoError(t, fencing.Inject(ctx, carrier))
			require.Len(t, carrier.Values("fencing-token"), len(fences), "injecting twice adds nothing")
			joined.Set(fencing.HeaderName, strings.Join(carrier.Values(fencing.HeaderName), ", "))

			require.Equal(t, fences, slices.Collect(fencing.All(expect.NoError(fencing.Extract(t.Context(), carrier)).In(t))))
		})
	}
	require.Equal(t, fences, slices.Collect(fencing.All(expect.NoError(fencing.Extract(t.Context(), joined)).In(t))))
}

func TestInjectLeavesOutWhatIsInvalid(t *testing.T) {
	ctx := fencing.NewContext(t.Context(), write("a", 0))
	ctx = fencing.NewContext(ctx, write("", 1))
	header := make(http.Header)
	require.NoError(t, fencing.Inject(ctx, header))
	require.Empty(t, header)
}

func TestExtractNothing(t *testing.T) {
	require.Equal(t, t.Context(), expect.NoError(fencing.Extract(t.Context(), make(http.Header))).In(t))
}

func TestExtractAccepts(t *testing.T) {
	want := write("a b", 17)
	for _, value := range []string{
		`"17";lock="a b";mode=write`,
		`"17";lock="a%20b";mode=write`,
		`"17"; mode=write; lock="%61%20b"`,
		`  "00000000000000000017";lock="a b";mode=write  `,
	} {
		require.Equal(t, []fencing.Fence{want}, expect.NoError(fencing.ParseHeader([]string{value})).In(t, value), value)
	}
	good := fencing.FormatHeader(want)
	for name, values := range map[string][]string{
		"twice":            {good, good},
		"twice in a list":  {good + ", " + good},
		"in two encodings": {good, `"17"; lock="a b"; mode=write`},
		"beside nothing":   {"", good, "  "},
		"in a wide list":   {good + " \t, " + good},
		"of all bytes":     {strings.Repeat(" ", 16<<10-len(good)) + good},
	} {
		require.Equal(t, []fencing.Fence{want}, expect.NoError(fencing.ParseHeader(values)).In(t, name), name)
	}
	require.Empty(t, expect.NoError(fencing.ParseHeader([]string{""})).In(t))
	got := expect.NoError(fencing.ParseHeader([]string{`"17";lock="a\"\\b~";mode=read`})).In(t)
	require.Equal(t, `a"\b~`, got[0].Resource)
	require.Len(t, expect.NoError(fencing.ParseHeader(manyFences(64))).In(t), 64)
}

func manyFences(n int) []string {
	many := make([]string, n)
	for i := range many {
		many[i] = fmt.Sprintf(`"17";lock="r%d";mode=write`, i)
	}
	return many
}

func TestExtractRefuses(t *testing.T) {
	const good = `"17";lock="a";mode=write`
	for name, tt := range map[string]struct {
		values []string
		reason string
	}{
		"integer":           {[]string{`17;lock="a";mode=write`}, "quotes"},
		"negative":          {[]string{`"-1";lock="a";mode=write`}, "digits"},
		"2^53":              {[]string{`"9007199254740992";lock="a";mode=write`}, "limit"},
		"zero":              {[]string{`"0";lock="a";mode=write`}, "none"},
		"open string":       {[]string{`"17`}, "closing"},
		"open escape":       {[]string{`"17\`}, "backslash"},
		"bad escape":        {[]string{`"17";lock="\a";mode=write`}, "backslash"},
		"raw UTF-8":         {[]string{`"17";lock="ü";mode=write`}, "ASCII"},
		"control byte":      {[]string{"\"17\";lock=\"a\x00\";mode=write"}, "ASCII"},
		"bad percent":       {[]string{`"17";lock="%zz";mode=write`}, "escape"},
		"not UTF-8":         {[]string{`"17";lock="%FF";mode=write`}, "UTF-8"},
		"empty lock":        {[]string{`"17";lock="";mode=write`}, "empty"},
		"long lock":         {[]string{`"17";lock="` + strings.Repeat("x", 513) + `";mode=write`}, "limit is 512"},
		"no parameters":     {[]string{`"17"`}, "lock is missing"},
		"no lock":           {[]string{`"17";mode=write`}, "lock is missing"},
		"no mode":           {[]string{`"17";lock="a"`}, "mode is missing"},
		"mode of nothing":   {[]string{`"17";lock="a";mode=`}, "read"},
		"unknown mode":      {[]string{`"17";lock="a";mode=none`}, "read"},
		"mode in capitals":  {[]string{`"17";lock="a";mode=WRITE`}, "read"},
		"unknown parameter": {[]string{good + `;owner=x`}, "parameters are"},
		"unknown, no mode":  {[]string{`"17";lock="a";owner=write`}, "parameters are"},
		"bare parameter":    {[]string{good + `;x`}, "name and a value"},
		"repeated lock":     {[]string{good + `;lock="b"`}, "repeated"},
		"repeated mode":     {[]string{good + `;mode=read`}, "repeated"},
		"rubbish behind":    {[]string{good + ` x`}, "comma"},
		"comma at the end":  {[]string{good + `,`}, "last comma"},
		"inner list":        {[]string{`("17");lock="a";mode=write`}, "quotes"},
		"another token":     {[]string{good, `"18";lock="%61";mode=write`}, "second fence"},
		"another mode":      {[]string{good, `"17";lock="a";mode=read`}, "second fence"},
		"two in a list":     {[]string{good + `, "18";lock="a";mode=write`}, "second fence"},
		"one of two is bad": {[]string{good, `"x";lock="b";mode=read`}, "digits"},
		"too many":          {manyFences(65), "limit of 64 fences"},
		"oversize":          {[]string{strings.Repeat(" ", 16<<10) + good}, "limit of 16384 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			before := fencing.NewContext(t.Context(), read("mine", 1))
			after, err := fencing.Extract(before, http.Header{fencing.HeaderName: tt.values})
			require.ErrorIs(t, err, fencing.ErrMalformed)
			require.ErrorContains(t, err, tt.reason)
			require.Less(t, len(err.Error()), 600)
			require.Equal(t, before, after, "refused means that nothing is taken over")
		})
	}
}

func FuzzExtract(f *testing.F) {
	f.Add(`"17";lock="a";mode=write`, `"18";lock="b";mode=read`)
	f.Add(`"17";lock="a%20b";mode=write, "18";lock="b";mode=read`, ``)
	f.Add(`"-1";lock="a\"";mode=write`, `"9007199254740992"`)
	f.Fuzz(func(t *testing.T, a, b string) {
		header := http.Header{fencing.HeaderName: {a, b}}
		ctx, err := fencing.Extract(context.Background(), header)
		if err != nil {
			require.ErrorIs(t, err, fencing.ErrMalformed)
			return
		}
		requireRoundTrip(t, ctx)
	})
}

func FuzzRoundTrip(f *testing.F) {
	f.Add("orders/42", uint64(17), true)
	f.Add("ü\"\\%,;\x00", uint64(fencing.MaxToken), false)
	f.Add("\xff", uint64(0), false)
	f.Fuzz(func(t *testing.T, resource string, token uint64, write bool) {
		fence := fencing.Fence{Resource: resource, Token: fencing.Token(token), Mode: fencing.Read}
		if write {
			fence.Mode = fencing.Write
		}
		if fence.Validate() != nil {
			return
		}
		requireRoundTrip(t, fencing.NewContext(context.Background(), fence))
	})
}

func requireRoundTrip(t *testing.T, ctx context.Context) {
	t.Helper()
	want := slices.Collect(fencing.All(ctx))
	carrier := fencing.MapCarrier{}
	require.NoError(t, fencing.Inject(ctx, carrier))
	again := expect.NoError(fencing.Extract(context.Background(), carrier)).In(t)
	require.Equal(t, want, slices.Collect(fencing.All(again)))
	for _, f := range want {
		require.NoError(t, f.Validate())
	}
}
