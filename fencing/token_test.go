package fencing_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/fencing"
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
			got, err := fencing.ParseToken(text)
			require.NoError(t, err)
			require.Equal(t, token, got)
		}
	}
	require.True(t, slices.IsSortedFunc(tokens, func(a, b fencing.Token) int {
		return strings.Compare(a.Padded(), b.Padded())
	}), "padded tokens sort as text")
}

func TestTokenJSON(t *testing.T) {
	type record struct{ Token fencing.Token }
	text, err := json.Marshal(record{1763712345678901})
	require.NoError(t, err)
	require.JSONEq(t, `{"Token":"1763712345678901"}`, string(text))

	var got record
	require.NoError(t, json.Unmarshal(text, &got))
	require.EqualValues(t, 1763712345678901, got.Token)

	require.Error(t, json.Unmarshal([]byte(`{"Token":17}`), &got), "a JSON number is not a token")
	require.ErrorIs(t, json.Unmarshal([]byte(`{"Token":"-1"}`), &got), fencing.ErrMalformed)

	_, err = json.Marshal(record{fencing.MaxToken + 1})
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
	v, err := fencing.Token(1763712345678901).Value()
	require.NoError(t, err)
	require.Equal(t, int64(1763712345678901), v)
	_, err = (fencing.MaxToken + 1).Value()
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
