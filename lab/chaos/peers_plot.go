package main

import (
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/seed74116694/fencelock/lab/chaos/history"
	"github.com/seed74116694/fencelock/lab/chart"
)

// The marks of a row of the plot, in the colours of the other charts.
var marks = []struct {
	guard, legend string
	style         draw.GlyphStyle
}{
	{"", "without a guard", draw.GlyphStyle{
		Color: chart.Colours[1], Radius: 5, Shape: draw.CircleGlyph{},
	}},
	{history.Compared, "the store compares the lock's random value", draw.GlyphStyle{
		Color: chart.Grey, Radius: 6, Shape: draw.RingGlyph{},
	}},
	{history.Fenced, "the store compares the fencing token", draw.GlyphStyle{
		Color: chart.Colours[0], Radius: 5, Shape: draw.BoxGlyph{},
	}},
}

// plotLosses draws a row for each library in each scene: how many were lost of a thousand writes that were
// acknowledged. Without any lock most are lost, so that row would hide the others.
func plotLosses(file string, tallies []tally) error {
	p := plot.New()
	p.Title.Text = "Lost updates under pauses and faults"
	p.X.Label.Text = "lost, of 1000 acknowledged writes"
	p.Legend.Top, p.Legend.Padding = true, 3
	p.Add(plotter.NewGrid())
	tallies = slices.DeleteFunc(slices.Clone(tallies), func(y tally) bool { return y.library == noLock })
	slices.Reverse(tallies) // the first row is on top
	names := make([]string, len(tallies))
	for i, y := range tallies {
		names[i] = y.library + ", " + y.scene
	}
	for _, mark := range marks {
		var points plotter.XYs
		for i, y := range tallies {
			if g := y.guards[mark.guard]; g.acknowledged > 0 {
				points = append(points, plotter.XY{X: 1000 * float64(g.lost) / float64(g.acknowledged), Y: float64(i)})
			}
		}
		if len(points) == 0 {
			continue
		}
		dots, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		dots.GlyphStyle = mark.style
		p.Add(dots)
		p.Legend.Add(mark.legend, dots)
	}
	p.X.Min, p.X.Max = 0, max(1.1*p.X.Max, 1)
	p.NominalY(names...)
	p.Y.Min, p.Y.Max = -0.5, float64(len(names))-0.5
	return chart.Save(p, vg.Length(len(names)+3)*chart.RowHeight, file)
}
