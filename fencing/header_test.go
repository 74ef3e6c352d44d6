package fencing_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

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
			fencing.Inject(ctx, carrier)
			fencing.Inject(ctx, carrier)
			require.Len(t, carrier.Values("fencing-token"), len(fences), "injecting twice adds nothing")
			joined.Set(fencing.HeaderName, strings.Join(carrier.Values(fencing.HeaderName), ", "))

			got, err := fencing.Extract(t.Context(), carrier)
			require.NoError(t, err)
			require.Equal(t, fences, slices.Collect(fencing.All(got)))
		})
	}
	got, err := fencing.Extract(t.Context(), joined)
	require.NoError(t, err)
	require.Equal(t, fences, slices.Collect(fencing.All(got)))
}

func TestInjectLeavesOutWhatIsInvalid(t *testing.T) {
	ctx := fencing.NewContext(t.Context(), write("a", 0))
	ctx = fencing.NewContext(ctx, write("", 1))
	header := make(http.Header)
	fencing.Inject(ctx, header)
	require.Empty(t, header)
}

func TestExtractNothing(t *testing.T) {
	ctx, err := fencing.Extract(t.Context(), make(http.Header))
	require.NoError(t, err)
	require.Equal(t, t.Context(), ctx)
}

func TestExtractAccepts(t *testing.T) {
	want := write("a b", 17)
	for _, value := range []string{
		`"17";lock="a b";mode=write`,
		`"17";lock="a%20b";mode=write`,
		`"17"; mode=write; lock="%61%20b"`,
		`  "00000000000000000017";lock="a b";mode=write  `,
	} {
		got, err := fencing.ParseHeader([]string{value})
		require.NoError(t, err, value)
		require.Equal(t, []fencing.Fence{want}, got, value)
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
		got, err := fencing.ParseHeader(values)
		require.NoError(t, err, name)
		require.Equal(t, []fencing.Fence{want}, got, name)
	}
	none, err := fencing.ParseHeader([]string{""})
	require.NoError(t, err)
	require.Empty(t, none)
	got, err := fencing.ParseHeader([]string{`"17";lock="a\"\\b~";mode=read`})
	require.NoError(t, err)
	require.Equal(t, `a"\b~`, got[0].Resource)
	got, err = fencing.ParseHeader(manyFences(64))
	require.NoError(t, err)
	require.Len(t, got, 64)
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
	fencing.Inject(ctx, carrier)
	again, err := fencing.Extract(context.Background(), carrier)
	require.NoError(t, err)
	require.Equal(t, want, slices.Collect(fencing.All(again)))
	for _, f := range want {
		require.NoError(t, f.Validate())
	}
}
