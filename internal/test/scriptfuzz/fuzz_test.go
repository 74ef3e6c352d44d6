package scriptfuzz_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/scriptfuzz"
	"github.com/seed74116694/fencelock/internal/test/testredis"
)

var (
	seeds  = flag.Int("seeds", 0, "play so many seeds of each kind; 0: a few")
	from   = flag.Uint64("from", 1, "the first seed")
	kind   = flag.String("kind", "", "the only kind of sequences: plain, back, lost or many")
	server = flag.String("server", "", "the only server: the name of its binary, or lua5.4")
	steps  = flag.Int("steps", 300, "of a sequence")
)

// patience is for how long a server may stand still: a busy machine leaves it alone for seconds.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	scratch.Use("fencelock-scriptfuzz")
	goleak.VerifyTestMain(m)
}

// everywhere runs a test with a player on every installed server, whose clock stands still, and with one in Lua 5.4.
func everywhere(t *testing.T, test func(t *testing.T, p *scriptfuzz.Player)) {
	testredis.Require(t)
	for _, binary := range testredis.Binaries() {
		on(t, filepath.Base(binary), binary, nil, test, false)
	}
	on(t, "lua5.4", testredis.Binaries()[0], nil, test, true)
}

func on(
	t *testing.T, name, binary string, older scriptfuzz.Scripts, test func(t *testing.T, p *scriptfuzz.Player),
	inLua54 bool,
) {
	if *server != "" && *server != name {
		return
	}
	t.Run(name, func(t *testing.T) {
		s := testredis.StartSkewedBinary(t, binary)
		var runner scriptfuzz.Runner
		if inLua54 {
			runner = testredis.StartLua54(t, s.Server)
		}
		option := s.Option()
		option.Username, option.Password = declared(t, s.Server)
		option.ConnWriteTimeout, option.Dialer.Timeout = patience, patience
		client := expect.NoError(rueidis.NewClient(option)).In(t)
		defer client.Close()
		p := expect.NoError(scriptfuzz.NewPlayer(client, s.Stand, runner, older)).In(t)
		defer p.Close()
		test(t, p)
	})
}

// declared returns a user who may touch no key but those that the calls declare: the server checks each command of a
// script against that.
func declared(t *testing.T, s *testredis.Server) (user, password string) {
	_, err := s.Command("ACL", "SETUSER", "locker", "on", ">secret", "+@all",
		"resetchannels", "&heard", "&deaf", "&sharded",
		"resetkeys", "~fencelock:{n}", "~fencelock:{n}:h", "~fencelock:{n}:q", "~fencelock:{n}:x", "~fencelock:master")
	require.NoError(t, err)
	return "locker", "secret"
}

// Random sequences leave and answer what the model says, and reach every reply code of every script.
func TestRandomSequences(t *testing.T) {
	seen := scriptfuzz.Coverage{}
	everywhere(t, func(t *testing.T, p *scriptfuzz.Player) {
		n := *seeds
		if n == 0 {
			n = testredis.Few(3, 32)
			if len(seen) > 0 { // the other servers need fewer to be tried
				testredis.NeedAll(t, "TestCorpus plays there")
				n = 3
			}
		}
		for _, k := range scriptfuzz.Kinds {
			if *kind == "" || *kind == string(k) {
				play(t, p, k, n)
			}
		}
		seen.Add(p.Seen())
	})
	t.Logf("reply codes and messages:\n%s", seen.Table())
	never, unlisted := seen.Missing()
	require.Empty(t, unlisted, "reply codes that no header lists")
	if *seeds == 0 && *kind == "" && testredis.All() && !t.Failed() {
		require.Empty(t, never, "never reached")
	}
}

func play(t *testing.T, p *scriptfuzz.Player, k scriptfuzz.Kind, n int) {
	began := time.Now()
	for i := range n {
		seed := *from + uint64(i)
		if s, err := scriptfuzz.Draw(p, seed, k, *steps); err != nil {
			explain(t, p, s, err, fmt.Sprintf("-kind=%s -from=%d -seeds=1 -steps=%d", k, seed, *steps))
		}
		if i+1 == n || (i+1)%500 == 0 {
			t.Logf("%s: %d seeds in %v", k, i+1, time.Since(began).Round(time.Second))
		}
	}
}

// explain fails the test with the shortest sequence that fails.
func explain(t *testing.T, p *scriptfuzz.Player, s scriptfuzz.Sequence, err error, flags string) {
	t.Helper()
	trace := p.Trace(8)
	test, _, _ := strings.Cut(t.Name(), "/")
	short := scriptfuzz.Shorten(p, s, 2000)
	again := p.Play(short)
	t.Fatalf("%v\nafter\n%s\n\nthe shortest sequence, of %d steps: %v\n%s\n%s\nto repeat it: "+
		"go test ./internal/test/scriptfuzz -run %s %s",
		err, trace, short.Len(), again, p.Trace(100), short.Text(), test, flags)
}

// Sequences that have failed before, or that catch a mistake in a script, keep to the model.
func TestCorpus(t *testing.T) {
	files := expect.NoError(filepath.Glob("testdata/corpus/*.jsonl")).In(t)
	require.NotEmpty(t, files)
	everywhere(t, func(t *testing.T, p *scriptfuzz.Player) {
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
				text := expect.NoError(os.ReadFile(file)).In(t)
				require.NoError(t, p.Play(expect.NoError(scriptfuzz.Parse(text)).In(t)))
				t.Logf("reply codes and messages so far:\n%s", p.Seen().Table())
			})
		}
	})
}
