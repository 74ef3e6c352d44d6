package fencing_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

func TestMaxAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := fencing.Token(time.Now().UnixMicro())
		const minute = 60_000_000
		for name, tt := range map[string]struct {
			token   fencing.Token
			limits  []fencing.ExtractOption
			refused bool
		}{
			"no limit":              {fencing.MaxToken, nil, false},
			"the greatest":          {fencing.MaxToken, []fencing.ExtractOption{fencing.MaxAhead(time.Minute)}, true},
			"just beyond":           {now + minute + 1, []fencing.ExtractOption{fencing.MaxAhead(time.Minute)}, true},
			"at the limit":          {now + minute, []fencing.ExtractOption{fencing.MaxAhead(time.Minute)}, false},
			"now":                   {now, []fencing.ExtractOption{fencing.MaxAhead(0)}, false},
			"ahead of a zero limit": {now + 1, []fencing.ExtractOption{fencing.MaxAhead(0)}, true},
			"long ago":              {now - minute, []fencing.ExtractOption{fencing.MaxAhead(time.Minute)}, false},
			"a lock counts from 1":  {1, []fencing.ExtractOption{fencing.MaxAhead(time.Minute)}, false},
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
			require.Equal(t, t.Context(), ctx, name)
		}
	})
}

func TestMaxAheadSaysHowFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		header := make(http.Header)
		tomorrow := fencing.Token(time.Now().Add(24 * time.Hour).UnixMicro())
		header.Add(fencing.HeaderName, fencing.FormatHeader(write("a", tomorrow)))
		_, err := fencing.Extract(t.Context(), header, fencing.MaxAhead(time.Minute))
		require.EqualError(t, err, `fencing: malformed token "`+tomorrow.String()+
			`": for "a" it is 24h0m0s ahead of the clock here, the limit is 1m0s`)
	})
}
