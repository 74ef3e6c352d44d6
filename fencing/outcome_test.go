package fencing_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

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
				locker, err := rwlock.New(redis.Client(t), rwlock.WithoutRenewal())
				require.NoError(t, err)
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
	fencing.Inject(ctx, carrier)
	fencing.Inject(ctx, carrier)
	require.Equal(t, []string{`"` + ulid + `"`}, carrier.Values("fencing-owner"), "injecting twice adds nothing")
	there, err := fencing.Extract(t.Context(), carrier)
	require.NoError(t, err)
	require.Equal(t, ulid, fencing.OwnerFromContext(there).String())

	next := fencing.MapCarrier{"fencing-owner": {`"` + strings.ToLower(ulid) + `"`}}
	fencing.Inject(there, next)
	require.Len(t, next.Values("fencing-owner"), 1, "a proxy that copies the header and injects as well")
}

func TestNoOwnerIsSent(t *testing.T) {
	for _, owner := range []string{"", "somebody", strings.Repeat("0", 26)} {
		header := make(http.Header)
		fencing.Inject(fencing.NewOwnerContext(t.Context(), named(owner)), header)
		require.Empty(t, header, owner)
	}
	require.Nil(t, fencing.OwnerFromContext(t.Context()))
	inner := fencing.NewOwnerContext(fencing.NewOwnerContext(t.Context(), named(ulid)), named(""))
	header := make(http.Header)
	fencing.Inject(inner, header)
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
		fencing.Inject(ctx, carrier)
		again, err := fencing.Extract(context.Background(), carrier)
		require.NoError(t, err)
		require.Equal(t, owner, fencing.OwnerFromContext(again))
	})
}
