package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// writeTable writes the result for people.
func writeTable(w io.Writer, r *result) {
	kind := "servers: " + strings.Join(r.Servers, ", ")
	if r.Embedded {
		kind = plural(len(r.Servers), "embedded master")
	}
	fmt.Fprintf(w, "%s; %s of %d workers on %s for %.1f s", kind,
		plural(r.Clients, "client"), r.Workers/r.Clients, plural(r.Names, "name"), r.Seconds)
	if r.Interrupted {
		fmt.Fprint(w, ", interrupted")
	}
	fmt.Fprintf(w, "\n\n%-10s%12s%10s%12s%12s%12s\n", "mode", "acquired", "per s", "wait p50", "wait p99", "wait max")
	for _, row := range []struct {
		mode string
		n    modeCount
	}{{"write", r.Write}, {"read", r.Read}, {"nested", r.Nested}} {
		fmt.Fprintf(w, "%-10s%12d%10.0f%12s%12s%12s\n",
			row.mode, row.n.Acquired, row.n.PerSecond, short(row.n.P50), short(row.n.P99), short(row.n.Max))
	}
	fmt.Fprintln(w)
	for _, row := range []struct {
		what string
		n    uint64
		note string
	}{
		{"hand-offs", r.HandedOff, "granted directly by the holder before"},
		{"leases lost", r.LeasesLost, fmt.Sprintf("%d stalled on purpose", r.LateWrites)},
		{"stale writes refused", r.StaleRefused, fmt.Sprintf("%d late writes tried", r.LateWrites)},
		{"failed calls", r.Failures, r.Failure},
		{"violations", r.violations(), fmt.Sprintf("exclusion %d, token order %d, storage %d", r.Exclusion, r.TokenOrder, r.Storage)},
	} {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-22s%8d   %s", row.what, row.n, row.note), " "))
	}
	for _, detail := range r.Violations {
		fmt.Fprintln(w, "  ", detail)
	}
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

// short is a duration in three digits.
func short(micros float64) string {
	d := time.Duration(micros * float64(time.Microsecond))
	switch {
	case d < time.Microsecond:
		return d.String()
	case d < time.Millisecond:
		return fmt.Sprintf("%.3g us", micros)
	case d < time.Second:
		return fmt.Sprintf("%.3g ms", micros/1e3)
	default:
		return fmt.Sprintf("%.3g s", micros/1e6)
	}
}
