package outcome_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/outcome"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	errWork  = errors.New("disk full")
	errLost  = errors.New("lease of a lost")
	errOther = errors.New("lease of b lost")
)

func TestOf(t *testing.T) {
	inner := outcome.Of(nil, errLost)
	const returned, bothLost = "; the work had returned without an error", "lease of a lost; lease of b lost"
	insideAndOut := "lease of a lost" + returned + "; lease of b lost"
	for name, c := range map[string]struct {
		work      error
		losses    []error
		text      string
		completed bool
	}{
		"nothing was lost":              {nil, []error{nil, nil}, "", false},
		"the work failed":               {errWork, []error{nil}, "disk full", false},
		"lost, and had returned":        {nil, []error{errLost}, "lease of a lost" + returned, true},
		"two lost":                      {nil, []error{errLost, errOther}, bothLost + returned, true},
		"lost, the work failed":         {errWork, []error{errLost}, "disk full; lease of a lost", false},
		"the work returned the loss":    {errLost, []error{errLost}, "lease of a lost", false},
		"the work wrapped the loss":     {fmt.Errorf("save: %w", errLost), []error{errLost}, "save: lease of a lost", false},
		"a section inside was lost":     {inner, nil, "lease of a lost" + returned, false},
		"inside, and this one":          {inner, []error{errOther}, insideAndOut, false},
		"the same lease as that inside": {inner, []error{errLost}, "lease of a lost" + returned, false},
		"three sections":                {outcome.Of(inner, errLost), []error{errLost}, "lease of a lost" + returned, false},
	} {
		t.Run(name, func(t *testing.T) {
			err := outcome.Of(c.work, c.losses...)
			require.Equal(t, c.completed, outcome.Completed(err))
			require.Equal(t, c.completed, outcome.Completed(fmt.Errorf("call: %w", err)))
			if c.text == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.text)
			for _, part := range append(c.losses, c.work) {
				if part != nil {
					require.ErrorIs(t, err, part)
				}
			}
		})
	}
}
