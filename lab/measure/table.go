package main

import (
	"fmt"
	"io"
	"strconv"
)

// writeWorkload writes one table: a line for each peer at each point.
func writeWorkload(out io.Writer, w WorkloadResult) {
	fmt.Fprintf(out, "%s: %s\n", w.Name, w.About)
	if w.Over != "" {
		fmt.Fprintf(out, "(x: over %s)\n", w.Over)
	}
	fmt.Fprintf(out, "\n%s\n", heading(w))
	automatic := false
	for i, row := range w.Rows {
		if i > 0 && row.Point != w.Rows[i-1].Point {
			fmt.Fprintln(out)
		}
		if w.Axis != "" {
			fmt.Fprintf(out, "%*s  ", w.axisWidth(), row.Label)
		}
		name := row.Peer
		if row.mostlyAutomatic() {
			automatic = true
			name += " *"
		}
		fmt.Fprintf(out, "%-20s", name)
		for _, c := range w.Columns {
			fmt.Fprintf(out, "%*s", width(c), cell(row.Median, c.Name, c.Digits))
			if c.Ratio {
				fmt.Fprintf(out, "%7s", cell(row.Ratios, c.Name, 2))
			}
		}
		fmt.Fprintln(out)
	}
	if automatic {
		fmt.Fprintln(out, "*: in the automatic mode of rueidis, which was the better one")
	}
	for _, failure := range w.Failures {
		fmt.Fprintln(out, "failed:", failure)
	}
	fmt.Fprintln(out)
}

func heading(w WorkloadResult) string {
	line := fmt.Sprintf("%-20s", "peer")
	if w.Axis != "" {
		line = fmt.Sprintf("%*s  ", w.axisWidth(), w.Axis) + line
	}
	for _, c := range w.Columns {
		line += fmt.Sprintf("%*s", width(c), title(c))
		if c.Ratio {
			line += fmt.Sprintf("%7s", "x")
		}
	}
	return line
}

// axisWidth is the width of the column of points.
func (w *WorkloadResult) axisWidth() int {
	widest := 10
	for _, row := range w.Rows {
		widest = max(widest, len(row.Label))
	}
	return widest
}

func title(c Column) string {
	if c.Unit == "" {
		return c.Name
	}
	return c.Name + ", " + c.Unit
}

func width(c Column) int { return max(12, len(title(c))+2) }

// cell is "-" if there is no such measure.
func cell(m Measures, column string, digits int) string {
	v, ok := m[column]
	if !ok {
		return "-"
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}
