package scripts_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

// A server without memory refuses a call as a whole: nothing is changed, and nobody is told of a grant. Or it does all
// of it. What ends, renews or gives back a hold, or lets in who waits, it never refuses.
func TestAFullServerDoesAllOrNothing(t *testing.T) {
	endsOrKeeps := map[scripts.Name]bool{
		scripts.Release: true, scripts.Renew: true, scripts.Refresh: true, scripts.Break: true, scripts.Inspect: true,
		scripts.Yield: true,
	}
	onStandingClocks(t, func(e *env) {
		told := e.subscribe(channel)
		refused := 0
		e.inEachState(func(what string, build func() standing, c call) {
			build()
			e.heard(told)
			want, err := e.attempt(c)
			require.NoError(e.t, err, what)
			wantTold, wantKeys := e.heard(told), e.contents()

			build()
			before := e.dump()
			e.heard(told)
			require.NoError(e.t, e.do("CONFIG", "SET", "maxmemory", "1").Error())
			got, err := e.attempt(c)
			require.NoError(e.t, e.do("CONFIG", "SET", "maxmemory", "0").Error())
			if err == nil && c.script == scripts.Group && strings.Contains(what, "acquire of") {
				return // a member that is left is sent again alone
			}
			if err == nil {
				require.Equal(e.t, want, got, what)
				require.Equal(e.t, wantTold, e.heard(told), what)
				require.Equal(e.t, wantKeys, e.contents(), what)
				return
			}
			refused++
			require.ErrorContains(e.t, err, "OOM", what)
			require.False(e.t, endsOrKeeps[c.script], what)
			require.Empty(e.t, e.heard(told), what)
			require.Equal(e.t, before, e.dump(), what)
		})
		require.Positive(e.t, refused)
	})
}

// contents is dump without what is left of the keys: a release without memory gives a key its hour first.
func (e *env) contents() map[string][]string {
	all := e.dump()
	for key, content := range all {
		all[key] = content[:len(content)-1]
	}
	return all
}
