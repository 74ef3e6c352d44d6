package scripts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/scripts"
)

func luaFiles(t *testing.T) map[string]string {
	t.Helper()
	paths := expect.NoError(filepath.Glob("*.lua")).In(t)
	require.NotEmpty(t, paths)
	all := map[string]string{}
	for _, path := range paths {
		text := expect.NoError(os.ReadFile(path)).In(t)
		all[path] = string(text)
	}
	return all
}

func TestEveryScriptBeginsWithItsContract(t *testing.T) {
	for path, text := range luaFiles(t) {
		var header []string
		for line := range strings.SplitSeq(text, "\n") {
			if !strings.HasPrefix(line, "--") {
				break
			}
			header = append(header, line)
		}
		require.True(t, strings.HasPrefix(header[0], "-- "+path+": "), "%s: first line %q", path, header[0])
		for _, part := range []string{"KEYS", "ARGV", "Reply", "Twice", "Cost"} {
			found := 0
			for _, line := range header {
				if rest, ok := strings.CutPrefix(line, "-- "+part); ok && strings.TrimSpace(rest) != "" {
					found++
				}
			}
			require.Equal(t, 1, found, "%s: %s", path, part)
		}
	}
}

// A script that has no TTL at hand writes the life of life.lua for a TTL of 0. The queue has an hour from each waiter
// on, which is the longest claim.
func TestEachConstantLifeIsThatOfTheRule(t *testing.T) {
	files := luaFiles(t)
	rule := regexp.MustCompile(`or '(\d+)'\n$`).FindStringSubmatch(files["life.lua"])
	require.Len(t, rule, 2)
	lives := regexp.MustCompile(`'PEXPIRE', (\w+), '?(\d+)`)
	found := 0
	for path, text := range files {
		for _, life := range lives.FindAllStringSubmatch(text, -1) {
			found++
			if strings.HasPrefix(life[1], "queue") {
				require.Equal(t, "3600000", life[2], path)
			} else {
				require.Equal(t, rule[1], life[2], path)
			}
		}
	}
	require.Positive(t, found)
}

// The files that are no scripts of their own stand in the place of the lines that name them, and nowhere else.
func TestSourcesAreAssembled(t *testing.T) {
	files := luaFiles(t)
	included := map[string]bool{}
	include := regexp.MustCompile(`(?m)^ *-- include: (.*)\n`)
	for name, source := range scripts.All() {
		require.Equal(t, source, scripts.Source(name))
		want := files[string(name)+".lua"]
		for include.MatchString(want) {
			want = include.ReplaceAllStringFunc(want, func(line string) string {
				part := include.FindStringSubmatch(line)[1]
				require.Contains(t, files, part, name)
				included[part] = true
				return files[part]
			})
		}
		require.NotEmpty(t, source, name)
		require.Equal(t, want, source, name)
		require.NotContains(t, source, "include:", name)
	}
	for path := range files {
		name := scripts.Name(strings.TrimSuffix(path, ".lua"))
		require.Equal(t, included[path], scripts.Source(name) == "", "%s is either a script or included", path)
	}
	for _, none := range []scripts.Name{"", "vote", "lock", "settle", "no such", "../embed.go", "acquire.lua"} {
		require.Empty(t, scripts.Source(none))
	}
	for range scripts.All() {
		break // an iterator may be left early
	}
}

// Where a key of the lock holds something else, it is left as it is, and nothing of ours stays that does not expire.
func TestForeignKeysAreLeftAlone(t *testing.T) {
	everywhere(t, func(e *env) {
		for i, key := range lockKeys("n") {
			e.flushAll()
			require.NoError(e.t, e.do("SET", key, "somebody else's").Error())
			asked := []call{
				acquire(reader("01")), acquire(writer("02")), acquire(reader("03").listening(deaf)),
				refresh("01", "02"), join(reader("05").by("a")), renew("01", ttl, 1), raise("01", 1),
				regain(writer("06"), 1, 1),
				acquire(writer("04")), release("01", 0), release("02", ttl), release("03", 0), release("04", 0),
				yield("04", 1), release("07", ttl), inspect(),
			}
			refused := 0
			for _, c := range asked {
				_, err := e.try(c)
				if err != nil {
					require.ErrorContains(e.t, err, "WRONGTYPE", "%s", c.script)
					refused++
				}
			}
			require.Positive(e.t, refused, key)
			if i == 0 {
				require.Equal(e.t, len(asked)-1, refused, "all but a renewal, which says that the hold is gone")
			}
			for name, content := range e.dump() {
				if name == key {
					require.Equal(e.t, []string{"somebody else's", "left -1"}, content)
					continue
				}
				require.NotEqual(e.t, "left -1", content[len(content)-1], "%s stays for ever", name)
			}
		}
	})
}

// Nobody hears of a grant that is not written: not where a server takes no writes, nor where a key of the lock holds
// something else.
func TestNoMessageWithoutAGrant(t *testing.T) {
	waits := func(e *env, r request) <-chan string {
		e.run(acquire(writer("01")))
		e.run(acquire(r.listening("p" + channel)))
		return e.subscribe(channel)
	}
	everywhere(t, func(e *env) {
		heard := waits(e, reader("02"))
		require.NoError(e.t, e.do("SET", lockKeys("n")[1], "somebody else's").Error())
		_, err := e.try(release("01", 0))
		require.ErrorContains(e.t, err, "WRONGTYPE")
		require.Empty(e.t, e.heard(heard))
	})
	onServers(t, func(e *env) {
		for i, c := range []call{release("01", 0), refresh("02"), acquire(writer("03"))} {
			e.flushAll()
			e.loadAll()
			heard := waits(e, []func(string) request{reader, writer}[i%2]("02"))
			if i > 0 {
				e.pass(2 * ttl * time.Millisecond)
				e.setFields(lockKey, ulid("02"), "q 9999999999999 1 1 "+reader("02").listening("p"+channel).details())
			}
			require.NoError(e.t, e.do("CONFIG", "SET", "min-replicas-to-write", "1").Error())
			_, err := e.try(c)
			require.ErrorContains(e.t, err, "NOREPLICAS", "%s", c.script)
			require.NoError(e.t, e.do("CONFIG", "SET", "min-replicas-to-write", "0").Error())
			require.Empty(e.t, e.heard(heard))
			e.run(c)
			require.Len(e.t, e.heard(heard), 1)
		}
	})
}

// One lease whose keys hold something else does not keep the others of its call from being renewed.
func TestARenewalOfManyStandsTheLossOfOne(t *testing.T) {
	everywhere(t, func(e *env) {
		many := call{"renew", nil, texts([]any{0, ttl, "s"})}
		for i, name := range []string{"a", "b", "c", "d"} {
			c := acquire([]func(string) request{reader, writer}[i%2]("01"))
			c.keys = lockKeys(name)[:1]
			token := e.run(c)[1]
			many.keys = append(many.keys, c.keys...)
			many.args = append(many.args, ulid("01"), padded(token))
		}
		require.Equal(e.t, []any{int64(1), int64(1), int64(1), int64(1)}, e.run(many)[1:])
		require.NoError(e.t, e.do("SET", lockKeys("b")[0], "other").Error())
		require.NoError(e.t, e.do("SET", lockKeys("c")[1], "other").Error())
		require.Equal(e.t, []any{int64(1), int64(0), int64(0), int64(1)}, e.run(many)[1:])
		many.args[4] = "1" // not its token
		require.Equal(e.t, []any{int64(0), int64(0), int64(0), int64(1)}, e.run(many)[1:])
	})
}

// What a client says of a hold is stored and told as it is, whatever it is, also over a hand-off.
func TestDetailsAreKept(t *testing.T) {
	everywhere(t, func(e *env) {
		metas := []string{"", "a b  c", "100%", "line\nline", "nul\x00nul", "é", " - ", strings.Repeat("m", 256)}
		for _, meta := range metas {
			for _, owner := range []string{"", "a", "01"} {
				e.flushAll()
				for _, r := range []request{writer("01"), reader("01")} {
					r.meta, r.owner = meta, owner
					e.run(acquire(r))
					require.Equal(e.t, r.details(), e.run(tryAcquire(writer("02")))[7])
					waits := writer("03").by(owner)
					waits.meta = meta
					e.run(acquire(waits))
					e.run(release("01", 0))
					require.Equal(e.t, waits.details(), e.run(tryAcquire(writer("02")))[7])
					shown := e.run(inspect())[3].([]any)[0].([]any)
					require.Equal(e.t, meta, shown[8])
					require.Equal(e.t, ulid(map[string]string{"": "03"}[owner]+owner), shown[1])
					e.run(release("03", 0))
				}
				e.onlyTokensStay()
			}
		}
	})
}
