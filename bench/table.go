package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// columns is the width of a narrow terminal, which no output of the bench exceeds.
const columns = 60

// writeTable writes the result in human-readable form.
func writeTable(w io.Writer, r *result) {
	writeHead(w, r)
	fmt.Fprintf(w, "\n%-7s%9s%8s%12s%12s%12s\n", "mode", "acquired", "per s", "wait p50", "wait p99", "wait max")
	for _, row := range []struct {
		mode string
		n    modeCount
	}{{"write", r.Write}, {"read", r.Read}, {"nested", r.Nested}} {
		fmt.Fprintf(w, "%-7s%9d%8.0f%12s%12s%12s\n",
			row.mode, row.n.Acquired, row.n.PerSecond, short(row.n.P50), short(row.n.P99), short(row.n.Max))
	}
	fmt.Fprintln(w)
	for _, row := range []struct {
		what string
		n    uint64
		note string
	}{
		{"hand-offs", r.HandedOff, "granted by the holder before"},
		{"leases lost", r.LeasesLost, fmt.Sprintf("%d stalled on purpose", r.Stalls)},
		{"stale writes refused", r.StaleRefused, fmt.Sprintf("%d late writes tried", r.LateWrites)},
		{"updates lost", r.LostUnfenced, "in a copy that checks no token"},
		{"failed calls", r.Failures, ""},
		{"violations", r.violations(), fmt.Sprintf(
			"exclusion %d, order %d, storage %d", r.Exclusion, r.TokenOrder, r.Storage)},
	} {
		fmt.Fprintln(w, strings.TrimRight(fmt.Sprintf("%-20s%7d  %s", row.what, row.n, row.note), " "))
	}
	if r.Failure != "" {
		writeWrapped(w, "first failure: "+r.Failure)
	}
	for _, detail := range r.Violations {
		writeWrapped(w, detail)
	}
}

// writeHead describes the run.
func writeHead(w io.Writer, r *result) {
	servers := "servers: " + strings.Join(r.Servers, ", ")
	if r.Embedded {
		servers = plural(len(r.Servers), "embedded master")
	}
	writeWrapped(w, servers)
	interrupted := ""
	if r.Interrupted {
		interrupted = ", interrupted"
	}
	writeWrapped(w, fmt.Sprintf("%s of %d workers on %s for %.1f s%s",
		plural(r.Clients, "client"), r.Workers/r.Clients, plural(r.Names, "name"), r.Seconds, interrupted))
}

// writeFooter names the file of the picture, or the flag that creates one.
func writeFooter(w io.Writer, c config) {
	fmt.Fprintln(w)
	switch {
	case c.unfenced:
		writeWrapped(w, c.svg+" shows one late write in two storages: one checks the token, one does not.")
	case c.svg == "":
		writeWrapped(w, "-svg FILE shows who held what when, and the refused late write.")
	default:
		writeWrapped(w, c.svg+" shows who held what when, and the refused late write.")
	}
}

// writeWrapped writes a text of any length in lines that fit, all but the first indented. Only a single word may be
// longer.
func writeWrapped(w io.Writer, text string) {
	var line string
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) <= columns:
			line += " " + word
		default:
			fmt.Fprintln(w, line)
			line = "  " + word
		}
	}
	fmt.Fprintln(w, line)
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
