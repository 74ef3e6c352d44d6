package masterset_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/scripts"
)

// The server of these tests answers as marker.lua does.
func TestServerIsMarkerScript(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	synctest.Test(t, func(t *testing.T) {
		mini := testredis.NewMini(t)
		mini.NewProcess()
		client := mini.Client(t)
		is := &server{}
		for range 3000 {
			is.now = time.Duration(time.Now().UnixNano()).Truncate(time.Microsecond)
			info, err := client.Do(t.Context(), client.B().Info().Section("server").Build()).ToString()
			require.NoError(t, err)
			_, is.run, _ = strings.Cut(strings.Fields(info)[0], "run_id:")
			args := []string{
				pick("look", "join", "note", "succeed", "note", "succeed"), "2", pick("rules", "other"),
				pick("S", "T"), pick("0", "1", "2"), "a b c", pick("2000", "10000"),
				pick("", "1:"+is.run, "2:a 1:"+is.run, "1:b 3:"+is.run+" 2:c", "7:"+is.run+" 1:b 2:b"), pick("", "", "S"),
			}
			call := client.B().Eval().Script(scripts.Source(scripts.Marker)).Numkeys(1).Key("m").Arg(args...).Build()
			reply, err := client.Do(t.Context(), call).ToArray()
			require.NoError(t, err)
			var fields []string
			for _, f := range reply {
				if n, err := f.ToInt64(); err == nil {
					fields = append(fields, strconv.FormatInt(n, 10))
					continue
				}
				text, err := f.ToString()
				require.NoError(t, err)
				fields = append(fields, text)
			}
			require.Equal(t, fields, is.call(args).Fields, "%q", args)
			switch random.IntN(20) {
			case 0:
				mini.NewProcess()
			case 1:
				mini.FlushAll()
				clear(is.marker)
			case 2:
				mini.Miniredis().HDel("m", "id")
				delete(is.marker, "id")
			case 3:
				time.Sleep(time.Duration(random.IntN(4000)) * time.Millisecond)
			}
		}
	})
}
