package scripts_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

// mark runs marker.lua for the second seat of three.
func (e *env) mark(purpose, terms string) {
	e.t.Helper()
	e.run(call{scripts.Marker, []string{markerKey}, []string{
		purpose, "2", "rules", "S", "1", "a b c", "10000", terms, "", strconv.FormatInt(e.now().UnixMicro(), 10),
	}})
}

// abstains returns whether the master abstains, for about the quarantine.
func (e *env) abstains() bool {
	e.t.Helper()
	until, err := strconv.ParseInt(e.field(markerKey, "until"), 10, 64)
	require.NoError(e.t, err)
	return until > e.now().Add(5*time.Second).UnixMilli()
}

// A process has a term, and the next one begins with a quarantine. A client that only looks begins none: that is for
// those that know that it is the server of that seat.
func TestTermsOfASeat(t *testing.T) {
	onServers(t, func(e *env) {
		run := e.server.Info("server")["run_id"]
		old := strings.Repeat("a", 40)
		begin := func() {
			e.flushAll()
			e.mark("create", "")
			require.Equal(e.t, "0: 1:"+run, e.field(markerKey, "terms"))
			require.False(e.t, e.abstains())
		}

		begin()
		for _, purpose := range []string{"look", "note", "succeed", "create", "rejoin"} {
			e.mark(purpose, "")
			require.Equal(e.t, "S:"+run+":0", e.field(markerKey, "id"), "%s: it is the one that the marker knows", purpose)
		}
		e.mark("note", "4:"+old+" 1:"+run+" 2:"+old)
		require.Equal(e.t, "4:"+old+" 1:"+run+" 2:"+old, e.field(markerKey, "terms"))
		e.mark("note", "3:"+run+" 1:"+run+" 7:"+run)
		require.Equal(e.t, "4:"+old+" 1:"+run+" 7:"+run, e.field(markerKey, "terms"), "the later of each")
		require.False(e.t, e.abstains())

		for what, change := range map[string]func() (terms string){
			"another process has the marker": func() string { e.setFields(markerKey, "run", old); return "" },
			"another had the next term":      func() string { return "0: 2:" + old },
			"another had the same term":      func() string { return "0: 1:" + old },
		} {
			begin()
			terms := change()
			before := e.dump()
			e.mark("look", terms)
			require.Equal(e.t, before, e.dump(), "%s: who looks changes nothing", what)
			e.mark("succeed", terms)
			require.True(e.t, e.abstains(), what)
			require.Equal(e.t, run, e.field(markerKey, "run"), what)
			number := "2"
			if strings.Contains(terms, " 2:") {
				number = "3"
			}
			require.Equal(e.t, "0: "+number+":"+run, e.field(markerKey, "terms"), what)
			id := e.field(markerKey, "id")
			time.Sleep(2 * time.Millisecond)
			e.mark("succeed", terms)
			require.Equal(e.t, id, e.field(markerKey, "id"), "%s: it begins once", what)
		}

		begin()
		e.setFields(markerKey, "run", old)
		require.NoError(e.t, e.do("HDEL", markerKey, "id").Error())
		e.mark("look", "")
		require.Empty(e.t, e.field(markerKey, "id"), "what was taken from another process comes back with its term only")
		e.mark("succeed", "")
		require.NotEmpty(e.t, e.field(markerKey, "id"))

		begin()
		require.NoError(e.t, e.do("DEL", markerKey).Error())
		e.mark("rejoin", "0: 5:"+run)
		require.Equal(e.t, "0: 6:"+run, e.field(markerKey, "terms"), "one that has lost its data has the next term")
		require.True(e.t, e.abstains())
	})
}
