package rwlock_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/expect"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/internal/transport"
	"github.com/seed74116694/fencelock/redlock"
	"github.com/seed74116694/fencelock/rwlock"
)

// withPassword are addresses with a password, also some that break a rule.
var withPassword = []string{
	"redis://:PASSWORD@cache:6379/0", "rediss://default:PASSWORD@cache", "redis://u:PASSWORD@a:1,b:1,c",
	"unix://:PASSWORD@/run/redis.sock?db=1", "redis-sentinel://u:PASSWORD@a,b/name/1", "redis-cluster://:PASSWORD@a,b",
	"redis://:PASSWORD@a?addr=b&master_set=m", "redis://:PASSWORD@cache:port", "redis://:PASSWORD@cache/zero",
	"redis://:PASSWORD@cache?db=zero&dial_timeout=soon",
	"redis://:PASSWORD@cache?masterset=m", "redis://u%zz:PASSWORD@cache", "http://:PASSWORD@cache",
	":PASSWORD@cache:6379", "default:PASSWORD@cache:6379", "redis//:PASSWORD@cache", "redis-sentinel://:PASSWORD@a",
	"unix://:PASSWORD@run/redis.sock", "PASSWORD@cache", "redis:/:PASSWORD@cache:6379",
}

// alike returns a password with other letters and digits at the places of letters and digits.
func alike(password string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case strings.ContainsRune("0123456789", r):
			return '7'
		case strings.ContainsRune("abcdefABCDEF", r):
			return 'b'
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
			return 'q'
		default:
			return r
		}
	}, password)
}

// escape escapes all that is not a letter or a digit.
func escape(password string) string { return strings.ReplaceAll(url.QueryEscape(password), "+", "%20") }

// Two addresses that differ in nothing but the password give the same error, or the same servers: no part of a password
// is taken for a host, which log lines and errors name.
func FuzzPasswordsAreNotTold(f *testing.F) {
	for _, password := range []string{
		"", "secret", "Zx81Qp/Sup3r+9A==", "4711/Sup3r", "4711", "a#b", "a?b", "a%b", "a b", "a[b", "a@b", "a\\b", "a,b",
		"a:b", "a://b", "/", "@", "%41", "p@h/x", "p@h:1?y",
	} {
		f.Add(password)
	}
	f.Fuzz(func(t *testing.T, password string) {
		for _, form := range withPassword {
			as := func(password string) (servers []string, set, failed string) {
				addr := strings.ReplaceAll(form, "PASSWORD", password)
				read, rule := transport.ReadAddress(addr, "")
				if rule == "" {
					return read.Option.InitAddress, read.Option.Sentinel.MasterSet, ""
				}
				failed = rule + expect.ErrorOf(rwlock.Open(addr)).Error()
				failed += expect.ErrorOf(redlock.Open([]string{addr})).Error()
				for _, dialled := range []string{"", addr} {
					base := read.Option
					base.InitAddress = []string{addr}
					failed += expect.ErrorOf(rwlock.Dial(dialled, base)).Error()
				}
				return nil, "", failed + expect.ErrorOf(redlock.Dial([]string{addr, addr, addr}, read.Option)).Error()
			}
			servers, set, failed := as(password)
			servers2, set2, failed2 := as(alike(password))
			require.Equal(t, failed2, failed, form)
			require.Equal(t, servers2, servers, form)
			require.Equal(t, set2, set, form)

			plain, rule := transport.ReadAddress(strings.ReplaceAll(form, "PASSWORD", "secret"), "")
			read, rule2 := transport.ReadAddress(strings.ReplaceAll(form, "PASSWORD", escape(password)), "")
			require.Equal(t, rule, rule2, form)
			require.Equal(t, plain.Option.InitAddress, read.Option.InitAddress, form)
		}
	})
}

// A parameter with a mistake in its name is not ignored: ?master-set=m would be a locker over a sentinel. The error has
// the name if it has letters alone, and never a value.
func TestParametersThatAURLDoesNotHave(t *testing.T) {
	const known = "addr, client_cache, client_name, db, dial_timeout, master_set, max_retries, protocol, skip_verify, " +
		"write_timeout"
	for query, says := range map[string]string{
		"foo=s3cret":                    "foo is no parameter",
		"master-set=s3cret":             "master-set is no parameter",
		"db=1&zz=s3cret&Master_Set=x":   "Master_Set is no parameter",
		"s3cret":                        "what a URL has after the question mark is no parameter",
		"s3cret=x":                      "what a URL has after the question mark is no parameter",
		"=s3cret":                       "what a URL has after the question mark is no parameter",
		"dial_timeout=s3cret&unknown=1": "unknown is no parameter",
	} {
		url := "redis://:s3cret@localhost/?" + query
		one, _ := rwlock.Open(url)
		require.Nil(t, one, query)
		for _, err := range []error{
			expect.ErrorOf(rwlock.Open(url)), expect.ErrorOf(redlock.Open([]string{url, "b:1", "c:1"})),
			redlock.Found(t.Context(), []string{url, "b:1", "c:1"}),
		} {
			expect.Fails(t, err, rwlock.ErrOption, says, known)
			require.NotContains(t, err.Error(), "s3cret")
		}
	}
	for _, query := range []string{
		"db=1", "dial_timeout=1s&write_timeout=1s", "skip_verify", "protocol=3&client_cache=0&max_retries=0&client_name=a",
	} {
		locker := expect.NoError(rwlock.Open("redis://localhost:1/?"+query, testredis.Silent())).In(t, query)
		require.NoError(t, locker.Close())
	}
}

// What a server refuses, and what the log says of that, does not depend on the password either.
func TestErrorsAndLogsAreTheSameForEachPassword(t *testing.T) {
	testredis.Require(t)
	server := testredis.Start(t, "--requirepass", "right")
	told := func(password string) string {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))
		locker := expect.NoError(rwlock.Open("redis://:"+password+"@"+server.Addr(), rwlock.WithLogger(logger))).In(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := expect.ErrorOf(locker.Lock(ctx, "x"))
		ping := locker.Ping(ctx)
		require.Error(t, ping)
		require.NoError(t, locker.Close())
		return err.Error() + ping.Error() + log.String()
	}
	require.Equal(t, told("Zx81Qp"), told("p%2Fassword"))
}
