package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/rwlock"
)

// The page has the locks of an application that is down. It is for this machine, under no name but its own.
func TestServe(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	app := application(t, rueidis.ClientOption{InitAddress: []string{redis.Addr()}})
	hold(t, app, "orders", rwlock.WithMeta("<b>web-1</b>"))

	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var out, errs output
	ended := make(chan int, 1)
	go func() {
		words := []string{"serve", "-listen", "127.0.0.1:0", "-addr", redis.Addr(), patience}
		ended <- run(ctx, words, func(string) string { return "" }, &out, &errs)
	}()
	line := regexp.MustCompile(`^http://127\.0\.0\.1:\d+/\n$`)
	require.Eventually(t, func() bool { return line.MatchString(out.String()) }, testkit.Patience, time.Millisecond,
		errs.String())
	address := strings.TrimSpace(out.String())

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(host string) (status int, body string) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		require.NoError(t, err)
		request.Host = host
		answer, err := client.Do(request)
		require.NoError(t, err)
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		require.NoError(t, err)
		return answer.StatusCode, string(text)
	}
	for _, host := range []string{"", "localhost", "localhost:8379", "127.0.0.1", "[::1]:8379", "[::1]"} {
		status, body := get(host)
		require.Equal(t, http.StatusOK, status, host)
		require.Contains(t, body, "orders")
		require.Contains(t, body, "&lt;b&gt;web-1&lt;/b&gt;")
		require.Contains(t, body, "Locks of <bdi>"+redis.Addr())
	}
	for _, host := range []string{"evil.example", "evil.example:8379", "10.0.0.1", "127.0.0.1.evil.example"} {
		status, body := get(host)
		require.Equal(t, http.StatusForbidden, status, host)
		require.NotContains(t, body, "orders")
	}
	interrupt()
	require.Zero(t, <-ended, errs.String())
}

func TestServeRefusesBadAddresses(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	for _, listen := range []string{"no address", "127.0.0.1:99999", redis.Addr()} {
		got := fencelock(t, "serve", "-listen", listen, "-addr", redis.Addr(), patience)
		require.Equal(t, statusUsage, got.status)
		require.Contains(t, got.errs, "fencelock serve: -listen "+listen)
	}
}

// Each address is asked for by itself, and by the name that the command line has.
func TestServeIsAskedForByItsAddress(t *testing.T) {
	for _, c := range []struct {
		address, named string
		fits, strange  []string
	}{
		{"127.0.0.1", "localhost", []string{"localhost:1", "127.0.0.1", "[::1]:1"}, []string{"", "10.0.0.1", "evil.example"}},
		{"10.0.0.1", "ops.example", []string{"10.0.0.1:1", "ops.example:1"}, []string{"localhost", "10.0.0.2"}},
		{"::", "", []string{"10.0.0.1:1", "[::1]", "127.0.0.1"}, []string{"", "localhost", "evil.example:1"}},
	} {
		page := onlyFor(net.ParseIP(c.address), c.named, http.NotFoundHandler())
		for want, hosts := range map[int][]string{http.StatusNotFound: c.fits, http.StatusForbidden: c.strange} {
			for _, host := range hosts {
				request, answer := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
				request.Host = host
				page.ServeHTTP(answer, request)
				require.Equal(t, want, answer.Code, "%s asked for as %q", c.address, host)
			}
		}
	}
}
