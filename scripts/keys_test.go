package scripts_test

import (
	"testing"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/scripts"
)

// A user who may touch nothing but the keys that each call declares, and publish nothing but hand-offs, runs every
// sequence: the server checks each command of a script against that.
func TestScriptsUseOnlyTheKeysTheyDeclare(t *testing.T) {
	onServers(t, func(b *bed) {
		admin, option := b.client, b.server.Option()
		rules := []string{"ACL", "SETUSER", "locker", "on", ">secret", "resetkeys", "resetchannels", "+@all", "&fencelock:c:*"}
		for _, key := range append(lockKeys("n"), markerKey) {
			rules = append(rules, "~"+key)
		}
		require.NoError(t, b.do(rules...).Error())
		option.Username, option.Password = "locker", "secret"
		client, err := rueidis.NewClient(option)
		require.NoError(t, err)
		t.Cleanup(client.Close)
		for name, steps := range sequences {
			b.client = admin
			b.flushAll()
			b.client = client
			for i, s := range steps {
				if s.pause > 0 {
					b.client = admin
					b.pass(s.pause)
					b.client = client
				}
				_, err := b.try(s.call)
				require.NoError(b.t, err, "%s, step %d: %s", name, i, s.call.script)
			}
		}
		b.run(call{scripts.Inspect, lockKeys("n"), nil})
		_, err = b.try(call{scripts.Renew, lockKeys("m"), []string{"0", tokenTTL, "01", "100"}})
		require.ErrorContains(b.t, err, "NOPERM", "the rules hold")
	})
}

// The scripts write to no key but those of their lock, also on a server without rules.
func TestScriptsLeaveOtherKeysAlone(t *testing.T) {
	everywhere(t, func(b *bed) {
		b.run(on("other", scripts.Acquire, "91", "X", "w", "client", 3_600_000, claim, "a", ""))
		b.run(on("other", scripts.Acquire, "92", "Y", "w", "client", 3_600_000, 3_600_000, "a", ""))
		b.set("fencelock:{n}:other", "text")
		bystanders := func() map[string][]string {
			all := b.dump()
			for _, key := range append(lockKeys("n"), markerKey) {
				delete(all, key)
			}
			for key, content := range all {
				all[key] = content[:len(content)-1] // without what is left of it
			}
			return all
		}
		before := bystanders()
		require.Len(b.t, before, 6)
		for _, steps := range sequences {
			for _, s := range steps {
				b.run(s.call)
				require.Equal(b.t, before, bystanders())
			}
		}
	})
}
