package fencing_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
)

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

	require.EqualError(t, read("orders/42", 0).Validate(),
		`fencing: no token for "orders/42"`)
	require.EqualError(t, read(strings.Repeat("ü", 300), 1).Validate(),
		`fencing: malformed resource "`+strings.Repeat("ü", 32)+`...": it has 600 bytes, the limit is 512`)
	require.EqualError(t, fencing.Fence{Resource: "orders/42", Token: 1, Mode: 0}.Validate(),
		`fencing: malformed mode "none": it must be read or write`)
}
