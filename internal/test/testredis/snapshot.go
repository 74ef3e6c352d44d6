package testredis

import (
	"fmt"
	"strconv"
	"time"
)

// Snapshot is the contents of a server at one moment, without its scripts and per-field TTLs.
type Snapshot struct {
	keys []snapshotKey
}

type snapshotKey struct {
	restore []string  // the command that makes the key
	expires time.Time // on the server's clock; zero for never
}

// snapshotScript returns, for each key, its TTL and the command that makes it. It is one script so
// that no command of a client comes in between.
const snapshotScript = `
local keys = {}
for _, key in ipairs(redis.call('KEYS', '*')) do
  local kind = redis.call('TYPE', key).ok
  local made
  if kind == 'string' then
    made = {'SET', key, redis.call('GET', key)}
  elseif kind == 'hash' then
    made = {'HSET', key, unpack(redis.call('HGETALL', key))}
  elseif kind == 'list' then
    made = {'RPUSH', key, unpack(redis.call('LRANGE', key, 0, -1))}
  elseif kind == 'set' then
    made = {'SADD', key, unpack(redis.call('SMEMBERS', key))}
  elseif kind == 'zset' then
    made = {'ZADD', key}
    local pairs = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    for i = 1, #pairs, 2 do
      made[#made + 1] = pairs[i + 1]
      made[#made + 1] = pairs[i]
    end
  else
    error('no snapshot of a ' .. kind)
  end
  keys[#keys + 1] = {redis.call('PTTL', key), made}
end
return keys`

// rollbackScript deletes all keys and runs the commands in ARGV, each after its number of words.
const rollbackScript = `
for _, key in ipairs(redis.call('KEYS', '*')) do redis.call('DEL', key) end
local i = 1
while i <= #ARGV do
  local words = tonumber(ARGV[i])
  redis.call(unpack(ARGV, i + 1, i + words))
  i = i + 1 + words
end
return #ARGV`

// Snapshot returns the present contents of the server.
func (m *Mini) Snapshot() *Snapshot {
	m.t.Helper()
	now := m.server.Load().now()
	reply, err := value([]byte(m.run("EVAL", snapshotScript, "0")))
	if err != nil {
		m.t.Errorf("snapshot: %v", err)
		return &Snapshot{}
	}
	s := &Snapshot{}
	for _, entry := range reply.([]any) {
		pair := entry.([]any)
		key := snapshotKey{}
		if ttl := pair[0].(int64); ttl >= 0 {
			key.expires = now.Add(time.Duration(ttl) * time.Millisecond)
		}
		for _, word := range pair[1].([]any) {
			key.restore = append(key.restore, fmt.Sprint(word))
		}
		s.keys = append(s.keys, key)
	}
	return s
}

// Rollback restores the server's contents of an earlier moment, as a restart from an old save does: expiry times are
// absolute, so keys that have expired since are not restored. Scripts and connections stay. For a restart, call it
// between Crash and Recover.
func (m *Mini) Rollback(s *Snapshot) {
	m.t.Helper()
	now := m.server.Load().now()
	args := []string{"EVAL", rollbackScript, "0"}
	for _, key := range s.keys {
		left := key.expires.Sub(now).Milliseconds()
		if !key.expires.IsZero() && left <= 0 {
			continue
		}
		args = append(append(args, strconv.Itoa(len(key.restore))), key.restore...)
		if !key.expires.IsZero() {
			args = append(args, "3", "PEXPIRE", key.restore[1], strconv.FormatInt(left, 10))
		}
	}
	if _, err := value([]byte(m.run(args...))); err != nil {
		m.t.Errorf("rollback: %v", err)
	}
}
