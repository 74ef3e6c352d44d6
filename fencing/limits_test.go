package fencing_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/expect"
)

// holding returns a context with n fences, of which the names have this length.
func holding(ctx context.Context, n, length int) context.Context {
	for i := range n {
		ctx = fencing.NewContext(ctx, write(fmt.Sprintf("%0*d", length, i), 17))
	}
	return ctx
}

// The sender refuses what the receiver would refuse, and nothing else.
func TestInjectRefusesWhatExtractDoes(t *testing.T) {
	const other = `"01K9Z3NDEKTSV4RRFFQ69G5FAW"`
	held := func(n, length int) context.Context { return holding(t.Context(), n, length) }
	owned := fencing.NewOwnerContext(held(1, 5), named(ulid))
	for name, tt := range map[string]struct {
		ctx    context.Context
		copied http.Header // what the message has already
		reason string      // "" is none
	}{
		"nothing":                  {ctx: t.Context()},
		"as many as there may be":  {ctx: held(64, 5)},
		"one more":                 {ctx: held(65, 5), reason: "more than the limit of 64 fences"},
		"many more":                {ctx: held(300, 5), reason: "limit of 64 fences"},
		"as long as they may be":   {ctx: held(31, 488)},
		"too long":                 {ctx: held(31, 509), reason: "limit of 16384 bytes"},
		"with copies":              {ctx: held(64, 5), copied: sentBy(t, held(64, 5))},
		"with others":              {ctx: held(64, 5), copied: sentBy(t, held(1, 6)), reason: "limit of 64 fences"},
		"beside another token":     {ctx: held(1, 5), copied: fences(`"18";lock="00000";mode=write`), reason: "second fence"},
		"beside another mode":      {ctx: held(1, 5), copied: fences(`"17";lock="00000";mode=read`), reason: "second fence"},
		"beside a malformed one":   {ctx: held(1, 5), copied: fences(`17`), reason: "quotes"},
		"the same owner":           {ctx: owned, copied: owners(`"` + ulid + `"`)},
		"beside another owner":     {ctx: owned, copied: owners(other), reason: "second owner"},
		"beside a malformed owner": {ctx: owned, copied: owners(`x`), reason: "quotes"},
		"nothing, malformed owner": {ctx: t.Context(), copied: owners(`x`), reason: "quotes"},
	} {
		t.Run(name, func(t *testing.T) {
			header := tt.copied.Clone()
			if header == nil {
				header = make(http.Header)
			}
			err := fencing.Inject(tt.ctx, header)
			_, refused := fencing.Extract(t.Context(), header)
			if tt.reason == "" {
				require.NoError(t, err)
				require.NoError(t, refused)
				return
			}
			require.ErrorIs(t, err, fencing.ErrMalformed)
			require.ErrorContains(t, err, tt.reason)
			require.Less(t, len(err.Error()), 400)
			require.ErrorIs(t, refused, fencing.ErrMalformed, "the receiver would refuse it too")
			require.ErrorContains(t, refused, tt.reason)
		})
	}
}

func sentBy(t *testing.T, ctx context.Context) http.Header {
	header := make(http.Header)
	require.NoError(t, fencing.Inject(ctx, header))
	return header
}

func fences(value string) http.Header { return http.Header{fencing.HeaderName: {value}} }
func owners(value string) http.Header { return http.Header{fencing.OwnerHeaderName: {value}} }

func FuzzInject(f *testing.F) {
	f.Add(`"17";lock="00000";mode=write`, `"18";lock="00000";mode=read`, uint8(64), uint16(5))
	f.Add(`17`, ``, uint8(65), uint16(200))
	f.Fuzz(func(t *testing.T, a, b string, n uint8, length uint16) {
		header := http.Header{}
		for _, value := range []string{a, b} {
			if value != "" {
				header.Add(fencing.HeaderName, value)
			}
		}
		ctx := holding(context.Background(), int(n), 1+int(length%fencing.MaxResource))
		err := fencing.Inject(ctx, header)
		_, refused := fencing.Extract(context.Background(), header)
		require.Equal(t, refused == nil, err == nil, "the sender says %v, the receiver %v", err, refused)
	})
}

func TestOnly(t *testing.T) {
	ctx := fencing.NewOwnerContext(holding(t.Context(), 100, 5), named(ulid))
	ctx = fencing.NewContext(ctx, read("00042", 99)) // the innermost of two

	some := fencing.Only(ctx, "00007", "00042", "none", "00003", "00042")
	require.Equal(t, []fencing.Fence{read("00042", 99), write("00007", 17), write("00003", 17)},
		slices.Collect(fencing.All(some)), "in the order of the context")
	require.Equal(t, write("00007", 17), expect.NoError(fencing.Require(some, "00007")).In(t))
	for _, left := range []string{"none", "00008"} {
		_, err := fencing.Require(some, left)
		require.ErrorIs(t, err, fencing.ErrMissing)
	}
	require.Equal(t, ulid, fencing.OwnerFromContext(some).String(), "the owner is no fence")
	there := expect.NoError(fencing.Extract(t.Context(), sentBy(t, some))).In(t)
	require.Equal(t, slices.Collect(fencing.All(some)), slices.Collect(fencing.All(there)))

	require.Empty(t, slices.Collect(fencing.All(fencing.Only(ctx))))
	require.Empty(t, slices.Collect(fencing.All(fencing.Only(t.Context(), "00007"))))
	more := fencing.NewContext(some, write("00008", 18))
	require.Len(t, slices.Collect(fencing.All(more)), 4, "a lock that is taken later is added")
	require.Len(t, slices.Collect(fencing.All(ctx)), 100, "the outer context stays as it was")
}

// A fence that changes later, and its deadline, are the source's in the narrower context too.
func TestOnlyKeepsTheSource(t *testing.T) {
	source := &dated{fence: read("a", 17), deadline: time.Unix(9, 0)}
	only := fencing.Only(fencing.NewContext(fencing.NewSourceContext(t.Context(), source), write("b", 1)), "a")
	source.fence = write("a", 18)
	require.Equal(t, write("a", 18), expect.NoError(fencing.Require(only, "a")).In(t))
	deadline, ok := fencing.Deadline(only, "a")
	require.True(t, ok)
	require.Equal(t, source.deadline, deadline)
}
