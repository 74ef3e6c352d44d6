package main

import (
	"bytes"
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/internal/test/scratch"
	"github.com/seed74116694/fencelock/internal/test/testkit"
	"github.com/seed74116694/fencelock/internal/test/testredis"
	"github.com/seed74116694/fencelock/rwlock"
)

func TestMain(m *testing.M) {
	scratch.Use("fencelock-cmd")
	testredis.Together()
	slow = testkit.Patience // doctor warns of no busy machine
	goleak.VerifyTestMain(m, testredis.LeftByClusters()...)
}

// output is what a command has printed so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// ran is a command that has ended.
type ran struct {
	status    int
	out, errs string
}

// fencelock runs the command with these words. Those with a "=" before the sub-command are its environment.
func fencelock(t *testing.T, words ...string) ran {
	t.Helper()
	environment := map[string]string{}
	for len(words) > 0 && strings.Contains(words[0], "=") {
		name, value, _ := strings.Cut(words[0], "=")
		environment[name], words = value, words[1:]
	}
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	var out, errs output
	status := run(ctx, words, func(name string) string { return environment[name] }, &out, &errs)
	return ran{status, out.String(), errs.String()}
}

const patience = "-timeout=20s" // a busy machine is slow

// application is a process that holds locks and is down since: nothing renews what it has left.
func application(t *testing.T, option rueidis.ClientOption, opts ...rwlock.Option) *rwlock.Locker {
	t.Helper()
	option.Dialer.Timeout = testkit.Patience
	opts = append(opts, rwlock.WithTTL(time.Hour), testredis.Patience())
	return testkit.Dial(t, "", option, opts...)
}

// aclLine returns a line of SECURITY.md.
func aclLine(t *testing.T, heading string) []string { return testkit.ACLLine(t, "../..", heading) }

// binary returns the server to test on.
func binary(t *testing.T) string {
	t.Helper()
	testredis.Require(t)
	return testredis.Binaries()[0]
}

func commandOn(t *testing.T, server *testredis.Server, args ...string) {
	t.Helper()
	_, err := server.Command(args...)
	require.NoError(t, err, "%v", args)
}
