package redisguard

import (
	_ "embed"
	"errors"
	"strings"

	"github.com/redis/rueidis"
)

//go:embed guard.lua
var guardScript string

// Script is an access in Lua that runs behind the check. [Guard.Do] refuses the zero value and nil; create a Script
// with NewScript.
type Script struct{ lua *rueidis.Lua }

var errZeroScript = errors.New("redisguard: the script is nil or zero, make it with NewScript")

func (s *Script) isZero() bool { return s == nil || s.lua == nil }

// NewScript returns a Script with a body as for EVAL, which may return a reply, with the caller's KEYS and ARGV. Create
// it once and use it many times: it is sent as EVALSHA, and in full only if the server does not know it. It is never
// repeated automatically after a failed connection.
func NewScript(body string) *Script {
	return &Script{lua: rueidis.NewLuaScript(strings.Replace(guardScript, "-- ACCESS", body, 1))}
}

// builtin are the scripts of a Guard's own methods.
type builtin struct{ claim, get, set, hset, del *Script }

func newBuiltin() builtin {
	return builtin{
		claim: NewScript(``),
		get:   NewScript(`return redis.call('GET', KEYS[1])`),
		set: NewScript(`
if ARGV[2] == '0' then return redis.call('SET', KEYS[1], ARGV[1]) end
return redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])`),
		// In portions, because Lua's stack ends at some 8000 arguments.
		hset: NewScript(`
for i = 1, #ARGV, 1000 do
  redis.call('HSET', KEYS[1], unpack(ARGV, i, math.min(i + 999, #ARGV)))
end`),
		del: NewScript(`return redis.call('DEL', KEYS[1])`),
	}
}
