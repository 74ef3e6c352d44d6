package chart

import (
	"fmt"
	"slices"
	"strings"
)

// Series is one line of a chart.
type Series struct {
	Name   string
	Dashed bool
	X, Y   []float64
}

// Lines is a chart of series over a logarithmic axis of counts.
type Lines struct {
	Title  string
	XLabel string
	YLabel string
	LogY   bool
	Series []Series
}

// SVG draws the chart.
func (l Lines) SVG() string {
	var xs, ys []float64
	for _, s := range l.Series {
		xs, ys = append(xs, s.X...), append(ys, s.Y...)
	}
	c := newCanvas(l.Title, lineHeight)
	if len(xs) == 0 {
		c.text("", plotLeft, plotTop+40, "start", "nothing was measured")
		return c.end()
	}
	x := scale{from: plotLeft + 20, to: plotRight - 20, low: slices.Min(xs), high: slices.Max(xs), log: true}
	y := valueScale(ys, l.LogY)
	c.valueAxis(y, l.YLabel)
	slices.Sort(xs)
	for _, v := range slices.Compact(xs) {
		c.line("axis", x.at(v), plotBottom, x.at(v), plotBottom+6)
		c.text("", x.at(v), plotBottom+24, "middle", number(v))
	}
	c.text("", (plotLeft+plotRight)/2, plotBottom+50, "middle", l.XLabel)
	for i, s := range l.Series {
		c.series(i, s, x, y)
	}
	return c.end()
}

func (c *canvas) series(i int, s Series, x, y scale) {
	class, points := "line", make([]string, len(s.X))
	if s.Dashed {
		class += " floor"
	}
	for j := range s.X {
		points[j] = fmt.Sprintf("%.1f,%.1f", x.at(s.X[j]), y.at(s.Y[j]))
		c.printf(`<circle cx="%.1f" cy="%.1f" r="4" fill="%s"><title>%s: %s at %s</title></circle>`,
			x.at(s.X[j]), y.at(s.Y[j]), colour(i), escape(s.Name), number(s.Y[j]), number(s.X[j]))
	}
	c.printf(`<polyline class="%s" stroke="%s" points="%s"/>`, class, colour(i), strings.Join(points, " "))
	top := float64(plotTop + 10 + 26*i)
	c.printf(`<line class="%s" stroke="%s" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`,
		class, colour(i), plotRight+20, top, plotRight+54, top)
	c.text("", plotRight+62, top+5, "start", s.Name)
}

// valueAxis draws the vertical axis with its grid.
func (c *canvas) valueAxis(y scale, label string) {
	for _, v := range y.ticks() {
		c.line("grid", plotLeft, y.at(v), plotRight, y.at(v))
		c.text("", plotLeft-8, y.at(v)+5, "end", number(v))
	}
	c.line("axis", plotLeft, plotTop, plotLeft, plotBottom)
	c.line("axis", plotLeft, plotBottom, plotRight, plotBottom)
	c.text("", plotLeft, plotTop-10, "start", label)
}
