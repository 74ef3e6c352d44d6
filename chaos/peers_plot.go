package main

import (
	"bytes"
	"image/color"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/seed74116694/fencelock/chaos/peer"
)

// The marks of a row of the plot, in colours that most people with a colour vision deficiency can tell apart.
var marks = []struct {
	guard, legend string
	style         draw.GlyphStyle
}{
	{bare, "without a guard", draw.GlyphStyle{
		Color: color.RGBA{0xd5, 0x5e, 0x00, 0xff}, Radius: 5, Shape: draw.CircleGlyph{},
	}},
	{compared, "the store compares the lock's random value", draw.GlyphStyle{
		Color: color.RGBA{0x9a, 0xa5, 0xb1, 0xff}, Radius: 6, Shape: draw.RingGlyph{},
	}},
	{fenced, "the store compares the fencing token", draw.GlyphStyle{
		Color: color.RGBA{0x00, 0x72, 0xb2, 0xff}, Radius: 5, Shape: draw.BoxGlyph{},
	}},
}

// plotLosses draws a row for each library in each scene: how many elements were lost of a thousand whose write was
// acknowledged. Without any lock most are lost, so that row would hide the others.
func plotLosses(file string, tallies []tally) error {
	p := plot.New()
	p.Title.Text = "Lost updates under pauses and faults"
	p.X.Label.Text = "lost, of 1000 acknowledged writes"
	p.Legend.Top = true
	p.Legend.Padding = vg.Points(3)
	p.Add(plotter.NewGrid())
	tallies = slices.DeleteFunc(slices.Clone(tallies), func(y tally) bool { return y.library == peer.None })
	slices.Reverse(tallies) // the first row is on top
	names := make([]string, len(tallies))
	for i, y := range tallies {
		names[i] = y.library + ", " + y.scene
	}
	for _, mark := range marks {
		var points plotter.XYs
		for i, y := range tallies {
			if set := y.sets[mark.guard]; set.acknowledged > 0 {
				points = append(points, plotter.XY{X: 1000 * float64(set.lost) / float64(set.acknowledged), Y: float64(i)})
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
	p.Y.Min, p.Y.Max = -0.5, float64(len(names))+1.5 // room for the legend
	const width, rowHeight, margin = 25 * vg.Centimeter, 0.8 * vg.Centimeter, vg.Centimeter / 4
	svg := vgsvg.New(width, vg.Length(len(names)+5)*rowHeight)
	all := draw.New(svg)
	all.SetColor(color.White)
	all.Fill(all.Path())
	p.Draw(draw.Crop(all, margin, -margin, margin, -margin))
	var text bytes.Buffer
	if _, err := svg.WriteTo(&text); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}
