package main

import (
	"bytes"
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fine is a result that there is nothing to complain of.
func fine() result {
	var h histogram
	h.add(2500 * time.Microsecond)
	return result{
		Servers: []string{"127.0.0.1:6379"}, Clients: 2, Workers: 4, Names: 1, Seconds: 2,
		Write: countMode(&h, 2), Read: countMode(&h, 2), Nested: countMode(&histogram{}, 2),
		LeasesLost: 2, Stalls: 2, LateWrites: 1, StaleRefused: 1,
	}
}

func TestVerdict(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*result)
		says   string // "" for nothing to complain of
	}{
		{"fine", func(*result) {}, ""},
		{"exclusion", func(r *result) { r.Exclusion = 1 }, "1 violations"},
		{"token order", func(r *result) { r.TokenOrder = 2 }, "2 violations"},
		{"storage", func(r *result) { r.Storage = 3; r.Interrupted = true }, "3 violations"},
		{"nothing acquired", func(r *result) { r.Write, r.Read = modeCount{}, modeCount{} }, "no lock was acquired"},
		{"no late write", func(r *result) { r.LateWrites = 0 }, "no stalled holder"},
		{"interrupted before the late write", func(r *result) { r.LateWrites = 0; r.Interrupted = true }, ""},
		{"servers gone", func(r *result) { r.ServersGone = "refused" }, "did not last to the end: refused"},
		{"servers gone before the late write", func(r *result) { r.ServersGone = "x"; r.LateWrites = 0 }, "did not last"},
		{"servers gone, interrupted", func(r *result) { r.ServersGone = "x"; r.Interrupted = true }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := fine()
			test.change(&r)
			if test.says == "" {
				require.NoError(t, r.verdict())
				return
			}
			require.ErrorContains(t, r.verdict(), test.says)
		})
	}
}

func TestTable(t *testing.T) {
	r := fine()
	r.Exclusion, r.Violations = 1, []string{"exclusion: two at once"}
	r.Interrupted = true
	var out bytes.Buffer
	writeTable(&out, &r)
	for _, line := range []string{
		"servers: 127.0.0.1:6379",
		"2 clients of 2 workers on 1 name for 2.0 s, interrupted",
		"write          1       0      2.5 ms      2.5 ms      2.5 ms",
		"nested         0       0          0s          0s          0s",
		"leases lost               2  2 stalled on purpose",
		"stale writes refused      1  1 late writes tried",
		"violations                1  exclusion 1, order 0, storage 0",
		"exclusion: two at once",
	} {
		require.Contains(t, strings.Split(out.String(), "\n"), line)
	}
}

func TestShortDurations(t *testing.T) {
	for micros, want := range map[float64]string{0: "0s", .4: "400ns", 12.34: "12.3 us", 4200: "4.2 ms", 1.5e6: "1.5 s"} {
		require.Equal(t, want, short(micros))
	}
}

// lineWidth counts what a terminal would: a tab goes on to the next eighth column.
func lineWidth(line string) (n int) {
	for _, r := range strings.TrimRight(line, "\n") {
		if n++; r == '\t' {
			n += 7 - (n-1)%8
		}
	}
	return n
}

func TestEverythingFitsANarrowTerminal(t *testing.T) {
	r := fine()
	r.Servers = []string{"redis-a.example.org:6379", "redis-b.example.org:6379", "redis-c.example.org:6379"}
	r.Clients, r.Workers, r.Names, r.Seconds, r.Interrupted = 256, 512, 1000, 86400, true
	many := modeCount{Acquired: 123456789, PerSecond: 99999, P50: 123.4, P99: 999_000, Max: 86_400e6}
	r.Write, r.Read, r.Nested = many, many, many
	r.HandedOff, r.LeasesLost, r.StaleRefused, r.Failures = 9999999, 9999999, 9999999, 9999999
	r.Failure = strings.Repeat("a failure that has much to say; ", 9)
	r.Violations = []string{strings.Repeat("two at once ", 20)}
	var out bytes.Buffer
	writeTable(&out, &r)
	writeFooter(&out, config{})
	writeFooter(&out, config{svg: "a-picture-of-this-run.svg"})
	writeFooter(&out, config{svg: "a-picture-of-this-run.svg", unfenced: true})
	_, err := parseFlags([]string{"-h"}, &out)
	require.ErrorIs(t, err, flag.ErrHelp)
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, lineWidth(line), columns, "%q", line)
	}
	words := strings.Join(strings.Fields(out.String()), " ")
	require.Equal(t, 9, strings.Count(words, "much to say;"), "nothing is cut off")
}
