package chart

// Bar is one bar of a chart.
type Bar struct {
	Name   string
	Value  float64
	Strong bool // is highlighted among the bars
}

// Bars is a chart of one figure for each of several peers, as rows from top to bottom.
type Bars struct {
	Title string
	Label string // the meaning of the figure
	Log   bool
	Bars  []Bar
}

const (
	nameRight = 230 // bars begin to the right of their names
	barHeight = 26
	barStep   = 40
)

// SVG draws the chart.
func (b Bars) SVG() string {
	c := newCanvas(b.Title, plotTop+barStep*max(len(b.Bars), 2)+60)
	if len(b.Bars) == 0 {
		c.text("", plotLeft, plotTop+40, "start", "nothing was measured")
		return c.end()
	}
	values := make([]float64, len(b.Bars))
	for i, bar := range b.Bars {
		values[i] = bar.Value
	}
	x := valueScale(values, b.Log)
	x.from, x.to = nameRight, width-100
	bottom := float64(plotTop + barStep*len(b.Bars))
	for _, v := range x.ticks() {
		c.line("grid", x.at(v), plotTop-6, x.at(v), bottom)
		c.text("", x.at(v), bottom+20, "middle", number(v))
	}
	for i, bar := range b.Bars {
		top, fill := float64(plotTop+barStep*i), "#9aa5b1"
		if bar.Strong {
			fill = colour(0)
		}
		c.printf(`<rect x="%d" y="%.1f" width="%.1f" height="%d" fill="%s"/>`,
			nameRight, top, max(x.at(bar.Value)-nameRight, 1), barHeight, fill)
		c.text("", nameRight-8, top+18, "end", bar.Name)
		c.text("", x.at(bar.Value)+6, top+18, "start", number(bar.Value))
	}
	c.text("", nameRight, bottom+44, "start", b.Label)
	return c.end()
}
