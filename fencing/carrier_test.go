package fencing_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

// A proxy copies the header of the request and injects what its context has. The sender may have written the fence in
// another way than this package does.
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
