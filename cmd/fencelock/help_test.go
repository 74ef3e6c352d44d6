package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// -h of a sub-command whose exit status a script may look at says what it means.
func TestHelpSaysTheStatus(t *testing.T) {
	for _, name := range []string{"inspect", "stuck", "break", "doctor"} {
		var out, errs output
		require.Equal(t, statusOK, run(t.Context(), []string{name, "-h"}, func(string) string { return "" }, &out, &errs))
		require.Regexp(t, `(?m)^The exit status is 0; 2 if .*; 3 if .*`, out.String())
	}
}
