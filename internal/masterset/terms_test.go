package masterset_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/masterset"
)

func TestMergeTerms(t *testing.T) {
	for what, c := range map[string]struct {
		mine, theirs, want string
		misses             bool
	}{
		"none":              {"", "", "", false},
		"mine only":         {"1:a 2:b", "", "1:a 2:b", false},
		"theirs only":       {"", "1:a 2:b", "1:a 2:b", true},
		"the later of each": {"4:a 1:b", "3:c 2:d 1:e", "4:a 2:d 1:e", true},
		"mine are later":    {"4:a 2:b", "3:c 2:d", "4:a 2:b", false},
		"without a process": {"1:a 0:", "1:a 1:", "1:a 1:", true},
		"malformed":         {"1:a", "x:b 2:c", "1:a", false},
		"negative":          {"1:a", "-2:c", "1:a", false},
	} {
		t.Run(what, func(t *testing.T) {
			merged, misses := masterset.MergeTerms(c.mine, c.theirs)
			require.Equal(t, c.want, merged)
			require.Equal(t, c.misses, misses)
		})
	}
}

func TestReplaced(t *testing.T) {
	for what, c := range map[string]struct {
		own, last string
		want      bool
	}{
		"nothing is known":          {"1:a", "", false},
		"the same":                  {"1:a", "1:a", false},
		"an earlier one":            {"2:a", "1:b", false},
		"a later one":               {"1:a", "2:b", true},
		"a later one, same process": {"1:a", "2:a", true},
		"the same term, another":    {"1:a", "1:b", true},
		"the same term, unknown":    {"1:a", "1:", false},
		"unknown, the same term":    {"1:", "1:a", false},
	} {
		t.Run(what, func(t *testing.T) { require.Equal(t, c.want, masterset.Replaced(c.own, c.last)) })
	}
}

// FuzzTerms merges lists that masters may store: the result has the later term of each seat, misses none of either, and
// does not change when it learns them again.
func FuzzTerms(f *testing.F) {
	f.Add("4:a 1:b", "3:c 2:d 1:e")
	f.Add("1:a", "")
	f.Add("0: 2:b", "1:a 2:c")
	f.Add("", "0:")
	f.Add("1:a:b 18446744073709551615:", "x")
	f.Fuzz(func(t *testing.T, mine, theirs string) {
		merged, misses := masterset.MergeTerms(mine, theirs)
		for _, learnt := range []string{mine, theirs} {
			again, misses := masterset.MergeTerms(merged, learnt)
			require.Equal(t, merged, again)
			require.False(t, misses)
		}
		before, _ := masterset.MergeTerms(mine, "")
		if misses {
			require.NotEqual(t, before, merged)
		}
		require.False(t, strings.Contains(before, "  "))
	})
}
