// Package chart draws the figures of several peers with gonum/plot, as SVG. The text of a chart is plain, so that it
// can be searched.
package chart

import (
	"image/color"
	"math"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	width      = 25 * vg.Centimeter
	lineHeight = 12 * vg.Centimeter
	RowHeight  = vg.Centimeter // of a chart of dots
	margin     = vg.Centimeter / 4
	radius     = vg.Length(3)
)

// The colours are distinguishable for most people with a colour vision deficiency.
var (
	Grey    = color.RGBA{0x9a, 0xa5, 0xb1, 0xff}
	Colours = []color.RGBA{
		{0x00, 0x72, 0xb2, 0xff},
		{0xd5, 0x5e, 0x00, 0xff},
		{0x00, 0x9e, 0x73, 0xff},
		{0xcc, 0x79, 0xa7, 0xff},
		{0xe6, 0x9f, 0x00, 0xff},
		{0x56, 0xb4, 0xe9, 0xff},
		{0x7f, 0x7f, 0x7f, 0xff},
		{0x00, 0x00, 0x00, 0xff},
		{0xb5, 0xa3, 0x00, 0xff},
	}
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

// Save draws the chart into an SVG file.
func (l Lines) Save(file string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = l.Title, l.XLabel, l.YLabel
	p.Legend.Top, p.Legend.Padding = true, radius
	p.Add(plotter.NewGrid())
	var xs, ys []float64
	for i, s := range l.Series {
		points := make(plotter.XYs, len(s.X))
		for j := range points {
			points[j].X, points[j].Y = s.X[j], s.Y[j]
		}
		if points = drawable(points, true, l.LogY); len(points) == 0 {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = Colours[i%len(Colours)], 2
		dots.GlyphStyle = draw.GlyphStyle{Color: line.Color, Radius: radius, Shape: draw.CircleGlyph{}}
		if s.Dashed {
			line.Dashes = []vg.Length{6, 4}
		}
		p.Add(line, dots)
		p.Legend.Add(s.Name, line, dots)
		for _, point := range points {
			xs, ys = append(xs, point.X), append(ys, point.Y)
		}
	}
	values(&p.X, xs, true)
	values(&p.Y, ys, l.LogY)
	var ticks plot.ConstantTicks
	slices.Sort(xs)
	for _, x := range slices.Compact(xs) {
		ticks = append(ticks, plot.Tick{Value: x, Label: number(x)})
	}
	p.X.Tick.Marker = ticks
	if len(xs) > 0 {
		p.X.Max = 1.2 * slices.Max(xs)
	}
	return Save(p, lineHeight, file)
}

// Dot is the figure of one peer.
type Dot struct {
	Name   string
	Value  float64
	Strong bool // is highlighted among the dots
}

// Dots is a chart of one figure for each of several peers, as rows from top to bottom.
type Dots struct {
	Title string
	Label string // the meaning of the figure
	Log   bool
	Dots  []Dot
}

// Save draws the chart into an SVG file.
func (d Dots) Save(file string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = d.Title, d.Label
	p.Add(plotter.NewGrid())
	var names []string
	var xs []float64
	for i, dot := range slices.Backward(d.Dots) {
		names = append(names, dot.Name)
		point := drawable(plotter.XYs{{X: dot.Value, Y: float64(len(d.Dots) - 1 - i)}}, d.Log, false)
		if len(point) == 0 {
			continue
		}
		xs = append(xs, dot.Value)
		glyph, err := plotter.NewScatter(point)
		if err != nil {
			return err
		}
		glyph.GlyphStyle = draw.GlyphStyle{Color: Grey, Radius: 2 * radius, Shape: draw.CircleGlyph{}}
		if dot.Strong {
			glyph.Color = Colours[0]
		}
		label, err := plotter.NewLabels(plotter.XYLabels{XYs: point, Labels: []string{number(dot.Value)}})
		if err != nil {
			return err
		}
		label.Offset = vg.Point{X: 3 * radius, Y: -radius}
		p.Add(glyph, label)
	}
	values(&p.X, xs, d.Log)
	p.Y.Min, p.Y.Max = -0.5, max(float64(len(names)), 1)-0.5
	if len(names) > 0 {
		p.NominalY(names...)
	}
	return Save(p, RowHeight*vg.Length(len(names)+3), file)
}

// drawable returns the points that have a place on the axes: a logarithmic one has none for zero.
func drawable(points plotter.XYs, logX, logY bool) plotter.XYs {
	return slices.DeleteFunc(points, func(p plotter.XY) bool { return logX && p.X <= 0 || logY && p.Y <= 0 })
}

// values gives the axis the range of the values: from zero, or from one power of ten to another.
func values(a *plot.Axis, all []float64, log bool) {
	switch {
	case len(all) == 0:
		a.Label.Text = "nothing was measured"
		a.Min, a.Max = 0, 1
		return
	case log:
		a.Min = math.Pow10(int(math.Floor(math.Log10(slices.Min(all)))))
		a.Max = max(math.Pow10(int(math.Ceil(math.Log10(slices.Max(all))))), 10*a.Min)
		a.Scale = plot.LogScale{}
		var ticks plot.ConstantTicks // plot.LogTicks has none below 1
		for v := a.Min; v < 2*a.Max; v *= 10 {
			ticks = append(ticks, plot.Tick{Value: v, Label: number(v)})
		}
		a.Tick.Marker = ticks
	default:
		a.Min, a.Max = 0, 1.1*slices.Max(all)
		a.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
			ticks := plot.DefaultTicks{}.Ticks(low, high)
			for i := range ticks {
				if !ticks[i].IsMinor() {
					ticks[i].Label = number(ticks[i].Value)
				}
			}
			return ticks
		})
	}
}

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

// Save draws a plot with its legend to the right of it.
func Save(p *plot.Plot, height vg.Length, file string) error {
	svg := vgsvg.New(width, height)
	all := draw.New(svg)
	all.SetColor(color.White)
	all.Fill(all.Path())
	all = draw.Crop(all, margin, -margin, margin, -margin)
	legend := p.Legend
	p.Legend = plot.NewLegend() // would be drawn over the lines
	legend.Draw(all)
	p.Draw(draw.Crop(all, 0, -legend.Rectangle(all).Size().X-margin, 0, 0))
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := svg.WriteTo(out); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
