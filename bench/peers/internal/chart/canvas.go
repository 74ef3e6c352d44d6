// Package chart draws line and bar charts as SVG. The text of a chart is plain, so that it can be searched.
package chart

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Measures of a chart, in pixels.
const (
	width      = 960
	lineHeight = 480
	plotLeft   = 80
	plotRight  = 700 // the legend is to the right of it
	plotTop    = 60
	plotBottom = 410
)

// canvas collects the parts of a drawing.
type canvas struct{ strings.Builder }

func newCanvas(title string, height int) *canvas {
	c := new(canvas)
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d">`,
		width, height, width, height)
	c.printf(`<style>text{font:14px sans-serif;fill:#222}.title{font-size:18px;font-weight:bold}` +
		`.grid{stroke:#ddd}.axis{stroke:#555}.line{fill:none;stroke-width:2.5}.floor{stroke-dasharray:6 4}</style>`)
	c.printf(`<rect width="%d" height="%d" fill="#fff"/>`, width, height)
	c.text("title", plotLeft, 32, "start", title)
	return c
}

func (c *canvas) end() string {
	c.printf("</svg>")
	return c.String()
}

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

func (c *canvas) text(class string, x, y float64, anchor, text string) {
	c.printf(`<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, class, x, y, anchor, escape(text))
}

func (c *canvas) line(class string, x1, y1, x2, y2 float64) {
	c.printf(`<line class="%s" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, class, x1, y1, x2, y2)
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

func escape(s string) string { return escaper.Replace(s) }

// The colours are distinguishable for most people with a colour vision deficiency.
var colours = []string{
	"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#000000", "#b5a300",
}

func colour(i int) string { return colours[i%len(colours)] }

// number is short: 12000 is 12k.
func number(v float64) string {
	switch {
	case math.Abs(v) >= 1e6:
		return strconv.FormatFloat(v/1e6, 'g', 3, 64) + "M"
	case math.Abs(v) >= 1e4:
		return strconv.FormatFloat(v/1e3, 'g', 3, 64) + "k"
	case math.Abs(v) >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
