package main

import (
	"bytes"
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
		LeasesLost: 1, LateWrites: 1, StaleRefused: 1,
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
		"servers: 127.0.0.1:6379; 2 clients of 2 workers on 1 name for 2.0 s, interrupted",
		"write                1         0      2.5 ms      2.5 ms      2.5 ms",
		"nested               0         0          0s          0s          0s",
		"stale writes refused         1   1 late writes tried",
		"violations                   1   exclusion 1, token order 0, storage 0",
		"   exclusion: two at once",
	} {
		require.Contains(t, strings.Split(out.String(), "\n"), line)
	}
}

func TestShortDurations(t *testing.T) {
	for micros, want := range map[float64]string{0: "0s", .4: "400ns", 12.34: "12.3 us", 4200: "4.2 ms", 1.5e6: "1.5 s"} {
		require.Equal(t, want, short(micros))
	}
}
