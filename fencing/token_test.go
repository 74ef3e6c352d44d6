package fencing_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestParseTokenRefuses(t *testing.T) {
	for name, tt := range map[string]struct{ in, reason string }{
		"empty":               {"", "empty"},
		"negative":            {"-1", "digits"},
		"sign":                {"+1", "digits"},
		"space before":        {" 1", "digits"},
		"space after":         {"1 ", "digits"},
		"line end":            {"1\n", "digits"},
		"fraction":            {"1.0", "digits"},
		"exponent":            {"1e3", "digits"},
		"hexadecimal":         {"0x1", "leading zeros"},
		"underscore":          {"1_000", "digits"},
		"arabic digits":       {"١", "digits"},
		"NUL":                 {"1\x00", "digits"},
		"leading zero":        {"017", "leading zeros"},
		"two zeros":           {"00", "leading zeros"},
		"19 digits padded":    {strings.Repeat("0", 18) + "1", "leading zeros"},
		"21 digits padded":    {strings.Repeat("0", 20) + "1", "21 bytes"},
		"2^53":                {"9007199254740992", "limit"},
		"2^53 padded":         {"00009007199254740992", "limit"},
		"2^64":                {"18446744073709551616", "limit"},
		"largest of 20":       {"99999999999999999999", "limit"},
		"a megabyte of zeros": {strings.Repeat("0", 1<<20), "limit is 20"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fencing.ParseToken(tt.in)
			require.Zero(t, got)
			require.ErrorIs(t, err, fencing.ErrMalformed)
			require.ErrorContains(t, err, tt.reason)
			require.Less(t, len(err.Error()), 300)

			var bad *fencing.MalformedError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, "token", bad.What)

			kept := fencing.Token(5)
			require.ErrorIs(t, kept.UnmarshalText([]byte(tt.in)), fencing.ErrMalformed)
			require.EqualValues(t, 5, kept, "a refused text must leave the token alone")
		})
	}
}

func TestTokenForms(t *testing.T) {
	tokens := []fencing.Token{0, 1, 9, 10, 17, 1763712345678901, fencing.MaxToken}
	for _, token := range tokens {
		for _, text := range []string{token.String(), token.Padded()} {
			require.Equal(t, token, expect.NoError(fencing.ParseToken(text)).In(t))
		}
	}
	require.True(t, slices.IsSortedFunc(tokens, func(a, b fencing.Token) int {
		return strings.Compare(a.Padded(), b.Padded())
	}), "padded tokens sort as text")
}

func TestTokenJSON(t *testing.T) {
	type record struct{ Token fencing.Token }
	text := expect.NoError(json.Marshal(record{1763712345678901})).In(t)
	require.JSONEq(t, `{"Token":"1763712345678901"}`, string(text))

	var got record
	require.NoError(t, json.Unmarshal(text, &got))
	require.EqualValues(t, 1763712345678901, got.Token)

	require.Error(t, json.Unmarshal([]byte(`{"Token":17}`), &got), "a JSON number is not a token")
	require.ErrorIs(t, json.Unmarshal([]byte(`{"Token":"-1"}`), &got), fencing.ErrMalformed)

	_, err := json.Marshal(record{fencing.MaxToken + 1})
	require.ErrorIs(t, err, fencing.ErrMalformed)
}

func TestTokenInSQL(t *testing.T) {
	for name, tt := range map[string]struct {
		src  any
		want fencing.Token
		bad  bool
	}{
		"NULL":        {nil, 0, false},
		"zero":        {int64(0), 0, false},
		"integer":     {int64(17), 17, false},
		"largest":     {int64(fencing.MaxToken), fencing.MaxToken, false},
		"uint64":      {uint64(17), 17, false},
		"text":        {"17", 17, false},
		"bytes":       {[]byte("00000000000000000017"), 17, false},
		"negative":    {int64(-1), 5, true},
		"2^53":        {int64(fencing.MaxToken) + 1, 5, true},
		"2^64-1":      {^uint64(0), 5, true},
		"float":       {float64(17), 5, true},
		"bool":        {true, 5, true},
		"empty text":  {"", 5, true},
		"signed text": {[]byte("-1"), 5, true},
	} {
		got := fencing.Token(5)
		err := got.Scan(tt.src)
		require.Equal(t, tt.want, got, name)
		require.Equal(t, tt.bad, errors.Is(err, fencing.ErrMalformed), name)
		require.Equal(t, tt.bad, err != nil, name)
	}
	require.Equal(t, int64(1763712345678901), expect.NoError(fencing.Token(1763712345678901).Value()).In(t))
	_, err := (fencing.MaxToken + 1).Value()
	require.ErrorIs(t, err, fencing.ErrMalformed)
}

func FuzzParseToken(f *testing.F) {
	for _, seed := range []string{"0", "1", "017", "-1", "9007199254740992", "00000000000000000017", "1e3", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		token, err := fencing.ParseToken(in)
		if err != nil {
			require.ErrorIs(t, err, fencing.ErrMalformed)
			require.Zero(t, token)
			return
		}
		require.LessOrEqual(t, token, fencing.MaxToken)
		require.Contains(t, []string{token.String(), token.Padded()}, in, "one token has two texts, no more")
	})
}

func TestFenceValidate(t *testing.T) {
	for name, tt := range map[string]struct {
		fence fencing.Fence
		want  error
	}{
		"read":             {read("orders/42", 17), nil},
		"write":            {write("orders/42", fencing.MaxToken), nil},
		"any UTF-8":        {read("{ü}: \x00\n日本", 1), nil},
		"longest name":     {read(strings.Repeat("x", 512), 1), nil},
		"zero value":       {fencing.Fence{}, fencing.ErrMalformed},
		"no name":          {read("", 1), fencing.ErrMalformed},
		"name too long":    {read(strings.Repeat("x", 513), 1), fencing.ErrMalformed},
		"name not UTF-8":   {read("\xff", 1), fencing.ErrMalformed},
		"no token":         {read("a", 0), fencing.ErrMissing},
		"token too great":  {read("a", fencing.MaxToken+1), fencing.ErrMalformed},
		"no mode":          {fencing.Fence{Resource: "a", Token: 1, Mode: 0}, fencing.ErrMalformed},
		"no mode there is": {fencing.Fence{Resource: "a", Token: 1, Mode: 3}, fencing.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.want == nil {
				require.NoError(t, tt.fence.Validate())
				return
			}
			require.ErrorIs(t, tt.fence.Validate(), tt.want)
		})
	}
}

func TestErrorsNameTheirCause(t *testing.T) {
	stale := &fencing.StaleError{Resource: "orders/42", Got: 17, Seen: 18}
	require.ErrorIs(t, stale, fencing.ErrStale)
	require.EqualError(t, stale, `fencing: stale token: "orders/42" has seen 18, got 17`)

	require.EqualError(t, read(strings.Repeat("x", 64), 0).Validate(),
		`fencing: no token for "`+strings.Repeat("x", 64)+`"`)
	require.EqualError(t, read(strings.Repeat("ü", 300), 1).Validate(),
		`fencing: malformed resource "`+strings.Repeat("ü", 32)+`...": it has 600 bytes, the limit is 512`)
	require.EqualError(t, fencing.Fence{Resource: "orders/42", Token: 1, Mode: 0}.Validate(),
		`fencing: malformed mode "none": it must be read or write`)
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func read(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Read}
}

func write(resource string, token fencing.Token) fencing.Fence {
	return fencing.Fence{Resource: resource, Token: token, Mode: fencing.Write}
}

// Every outcome of the recipe in Example_outcome, with real losses in fake time.
func TestOutcomes(t *testing.T) {
	lost := func(ctx context.Context) context.Context {
		<-ctx.Done()
		return ctx
	}
	for name, tt := range map[string]struct {
		before, after func(l *ledger, ctx context.Context) context.Context
		want          string
		stored        bool
	}{
		"undisturbed": {want: "done", stored: true},
		"lost after the commit": {
			after:  func(_ *ledger, ctx context.Context) context.Context { return lost(ctx) },
			want:   "done, and the lock was lost afterwards",
			stored: true,
		},
		"lost before the write": {
			before: func(_ *ledger, ctx context.Context) context.Context { return lost(ctx) },
			want:   "not done: the lock was lost on the way",
		},
		"late, and refused": { // the error is the refusal and the loss
			before: func(l *ledger, ctx context.Context) context.Context {
				fence, _ := fencing.FromContext(lost(ctx), "accounts/7")
				fence.Token++
				_ = l.guard.Claim(fence)
				return context.WithoutCancel(ctx)
			},
			want: "not done: refused, a newer holder has been here",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				redis := testredis.NewMini(t)
				locker := expect.NoError(rwlock.New(redis.Client(t), rwlock.WithoutRenewal())).In(t)
				defer func() { require.NoError(t, locker.Close()) }()
				l := &ledger{locker: locker, before: undisturbed, after: undisturbed}
				if tt.before != nil {
					l.before = func(ctx context.Context) context.Context { return tt.before(l, ctx) }
				}
				if tt.after != nil {
					l.after = func(ctx context.Context) context.Context { return tt.after(l, ctx) }
				}
				require.Equal(t, tt.want, l.post(t.Context(), "a"))
				require.Equal(t, tt.stored, len(l.entries) == 1)
			})
		})
	}
}

const ulid = "01K9Z3NDEKTSV4RRFFQ69G5FAV"

// named is an owner as a package that takes locks has it.
type named string

func (n named) String() string { return string(n) }

func TestOwnerTravelsBesideTheFence(t *testing.T) {
	ctx := fencing.NewContext(fencing.NewOwnerContext(t.Context(), named(ulid)), write("a", 17))
	carrier := fencing.MapCarrier{}
	require.NoError(t, fencing.Inject(ctx, carrier))
	require.NoError(t, fencing.Inject(ctx, carrier))
	require.Equal(t, []string{`"` + ulid + `"`}, carrier.Values("fencing-owner"), "injecting twice adds nothing")
	there := expect.NoError(fencing.Extract(t.Context(), carrier)).In(t)
	require.Equal(t, ulid, fencing.OwnerFromContext(there).String())

	next := fencing.MapCarrier{"fencing-owner": {`"` + strings.ToLower(ulid) + `"`}}
	require.NoError(t, fencing.Inject(there, next))
	require.Len(t, next.Values("fencing-owner"), 1, "a proxy that copies the header and injects as well")
}

func TestNoOwnerIsSent(t *testing.T) {
	for _, owner := range []string{"", "somebody", strings.Repeat("0", 26)} {
		header := make(http.Header)
		require.NoError(t, fencing.Inject(fencing.NewOwnerContext(t.Context(), named(owner)), header))
		require.Empty(t, header, owner)
	}
	require.Nil(t, fencing.OwnerFromContext(t.Context()))
	inner := fencing.NewOwnerContext(fencing.NewOwnerContext(t.Context(), named(ulid)), named(""))
	header := make(http.Header)
	require.NoError(t, fencing.Inject(inner, header))
	require.Empty(t, header, "the innermost says that there is none")
}

func TestExtractOwner(t *testing.T) {
	other := "7" + ulid[1:]
	for name, tt := range map[string]struct {
		values []string
		want   string // or none
		reason string // of the refusal
	}{
		"none":             {nil, "", ""},
		"empty":            {[]string{""}, "", ""},
		"one":              {[]string{`"` + ulid + `"`}, ulid, ""},
		"small letters":    {[]string{`"` + strings.ToLower(ulid) + `"`}, ulid, ""},
		"twice":            {[]string{`"` + ulid + `"`, `"` + ulid + `"`}, ulid, ""},
		"twice in a list":  {[]string{`"` + ulid + `", "` + ulid + `"`}, ulid, ""},
		"two":              {[]string{`"` + ulid + `"`, `"` + other + `"`}, "", "second owner"},
		"two in a list":    {[]string{`"` + ulid + `", "` + other + `"`}, "", "second owner"},
		"no quotes":        {[]string{ulid}, "", "quotes"},
		"zero":             {[]string{`"` + strings.Repeat("0", 26) + `"`}, "", "ULID"},
		"too large":        {[]string{`"8` + ulid[1:] + `"`}, "", "ULID"},
		"short":            {[]string{`"` + ulid[1:] + `"`}, "", "ULID"},
		"not base 32":      {[]string{`"` + ulid[1:] + `U"`}, "", "ULID"},
		"a name":           {[]string{`"somebody"`}, "", "ULID"},
		"nothing quoted":   {[]string{`""`}, "", "ULID"},
		"parameter":        {[]string{`"` + ulid + `";x=1`}, "", "comma"},
		"comma at the end": {[]string{`"` + ulid + `",`}, "", "last comma"},
		"oversize":         {[]string{strings.Repeat(" ", 16<<10+1)}, "", "limit"},
	} {
		t.Run(name, func(t *testing.T) {
			header := http.Header{
				fencing.OwnerHeaderName: tt.values,
				fencing.HeaderName:      {fencing.FormatHeader(write("a", 17))},
			}
			ctx, err := fencing.Extract(t.Context(), header)
			if tt.reason != "" {
				require.ErrorIs(t, err, fencing.ErrMalformed)
				require.ErrorContains(t, err, tt.reason)
				require.Equal(t, t.Context(), ctx, "refused means that nothing is taken over, the fence neither")
				return
			}
			require.NoError(t, err)
			if tt.want == "" {
				require.Nil(t, fencing.OwnerFromContext(ctx))
				return
			}
			require.Equal(t, tt.want, fencing.OwnerFromContext(ctx).String())
		})
	}
}

func FuzzExtractOwner(f *testing.F) {
	f.Add(`"`+ulid+`"`, `"`+strings.ToLower(ulid)+`", "`+ulid+`"`)
	f.Add(`"80000000000000000000000000"`, "")
	f.Fuzz(func(t *testing.T, a, b string) {
		ctx, err := fencing.Extract(context.Background(), http.Header{fencing.OwnerHeaderName: {a, b}})
		if err != nil {
			require.ErrorIs(t, err, fencing.ErrMalformed)
			return
		}
		owner := fencing.OwnerFromContext(ctx)
		if owner == nil {
			return
		}
		carrier := fencing.MapCarrier{}
		require.NoError(t, fencing.Inject(ctx, carrier))
		again := expect.NoError(fencing.Extract(context.Background(), carrier)).In(t)
		require.Equal(t, owner, fencing.OwnerFromContext(again))
	})
}
