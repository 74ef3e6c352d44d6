package main

import (
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		words  string
		status int
		says   string
	}{
		{"", statusUsage, "usage: fencelock"},
		{"help", statusOK, "usage: fencelock"},
		{"-h", statusOK, "doctor"},
		{"help break", statusOK, "-reason"},
		{"help break", statusOK, "\n    \tthe user"},
		{"help lst", statusUsage, `no sub-command "lst"`},
		{"lst", statusUsage, `no sub-command "lst"`},
		{"list -h", statusOK, "-older-than"},
		{"version", statusOK, "fencelock "},
		{"REDIS_URL=unix:a list", statusUsage, "must begin with"},
		{"list x", statusUsage, `takes no argument "x"`},
		{"list -nothing", statusUsage, "-nothing"},
		{"list -older-than soon", statusUsage, "older-than"},
		{"list -addr ,", statusUsage, "an address is empty"},
		{"list -timeout 0s", statusUsage, "-timeout must be positive"},
		{"list -sentinel m -cluster", statusUsage, "exclude each other"},
		{"list -ca file", statusUsage, "need -tls"},
		{"list -tls -ca does-not-exist", statusFailed, "does-not-exist"},
		{"inspect", statusUsage, "takes one name"},
		{"inspect a b", statusUsage, "takes one name, and 2 are given"},
		{"inspect a -watch", statusUsage, "-watch"},
		{"REDIS_URL=redis list", statusUsage, "REDIS_URL: must begin with redis://"},
		{"FENCELOCK_URL=http://a list", statusUsage, `FENCELOCK_URL: unknown scheme "http"`},
		{"REDIS_URL=redis-sentinel://a list", statusUsage, "the name of the master"},
		{"REDIS_URL=redis://a/x list", statusUsage, "number of a database"},
		{"REDIS_URL=redis://a?addr=%x list", statusUsage, "follows the question mark"},
	} {
		got := fencelock(t, strings.Fields(c.words)...)
		require.Equal(t, c.status, got.status, "%s: %s", c.words, got.errs)
		require.Contains(t, got.out+got.errs, c.says, c.words)
		if c.status == statusOK {
			require.Empty(t, got.errs, c.words)
		}
	}
	got := fencelock(t, "REDIS_URL=redis://u:top%secret@a", "list")
	require.Equal(t, statusUsage, got.status)
	require.NotContains(t, got.errs, "secret")
}

func TestTargets(t *testing.T) {
	for _, c := range []struct {
		words    string
		expected target
	}{
		{"", target{addrs: addresses{"127.0.0.1:6379"}}},
		{"-addr a", target{addrs: addresses{"a:6379"}}},
		{"-addr a,b:1 -addr [::1]:2", target{addrs: addresses{"a:6379", "b:1", "[::1]:2"}}},
		{"-addr ::1", target{addrs: addresses{"[::1]:6379"}}},
		{"-addr a -sentinel m", target{addrs: addresses{"a:26379"}, sentinel: "m"}},
		{"REDIS_URL=redis://a", target{addrs: addresses{"a:6379"}}},
		{"REDIS_URL=redis://:6380", target{addrs: addresses{"127.0.0.1:6380"}}},
		{"REDIS_URL=redis://b FENCELOCK_URL=redis://a", target{addrs: addresses{"a:6379"}}},
		{"REDIS_URL=redis://b -addr a", target{addrs: addresses{"a:6379"}}},
		{"REDIS_URL=redis://u:p%40q@a:1/3?x=y", target{addrs: addresses{"a:1"}, user: "u", password: "p@q", db: 3}},
		{"REDIS_URL=redis://:p@a", target{addrs: addresses{"a:6379"}, password: "p"}},
		{"REDIS_URL=redis://u:p@a -user v -db 2", target{addrs: addresses{"a:6379"}, user: "v", password: "p", db: 2}},
		{"REDIS_URL=REDIS://A/2/", target{addrs: addresses{"A:6379"}, db: 2}},
		{"REDIS_URL=rediss://a/", target{addrs: addresses{"a:6379"}, tls: true}},
		{"REDIS_URL=redis-sentinel://a/m/", target{addrs: addresses{"a:26379"}, sentinel: "m"}},
		{"-addr /run/redis.sock", target{addrs: addresses{"/run/redis.sock"}}},
		{
			"REDIS_URL=unix://u:p@/run/redis.sock?db=3",
			target{addrs: addresses{"/run/redis.sock"}, user: "u", password: "p", db: 3},
		},
		{"REDIS_URL=redis://u@a FENCELOCK_PASSWORD=p", target{addrs: addresses{"a:6379"}, user: "u", password: "p"}},
		{"REDIS_URL=rediss://a", target{addrs: addresses{"a:6379"}, tls: true}},
		{"REDIS_URL=valkeys://a?db=2", target{addrs: addresses{"a:6379"}, tls: true, db: 2}},
		{"REDIS_URL=redis://a?addr=b:1&addr=c", target{addrs: addresses{"a:6379", "b:1", "c:6379"}, cluster: true}},
		{"REDIS_URL=redis://a?addr=b:1&master_set=m", target{addrs: addresses{"a:26379", "b:1"}, sentinel: "m"}},
		{"REDIS_URL=redis://a?master_set=m -sentinel n", target{addrs: addresses{"a:26379"}, sentinel: "n"}},
		{"REDIS_URL=redis://a,b:1,c", target{addrs: addresses{"a:6379", "b:1", "c:6379"}}},
		{"REDIS_URL=redis-cluster://a,b", target{addrs: addresses{"a:6379", "b:6379"}, cluster: true}},
		{"REDIS_URL=rediss+cluster://a", target{addrs: addresses{"a:6379"}, cluster: true, tls: true}},
		{
			"REDIS_URL=redis+sentinel://u:p@a,b:1/my%20m/4 FENCELOCK_SENTINEL_PASSWORD=q",
			target{addrs: addresses{"a:26379", "b:1"}, user: "u", password: "p", sentinel: "my m", db: 4, sentinelPass: "q"},
		},
	} {
		var got target
		environment := map[string]string{}
		var args []string
		for _, word := range strings.Fields(c.words) {
			if name, value, found := strings.Cut(word, "="); found {
				environment[name] = value
			} else {
				args = append(args, word)
			}
		}
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		given := got.define(flags)
		require.NoError(t, flags.Parse(args), c.words)
		require.NoError(t, got.complete(given(), func(name string) string { return environment[name] }), c.words)
		got.prefix, got.timeout = "", 0
		require.Equal(t, c.expected, got, c.words)
	}
}
