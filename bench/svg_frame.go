package main

import (
	"fmt"
	"time"
)

// begin takes the number of clients, each of which has a colour.
func (c *canvas) begin(height, clients int) {
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="Helvetica, Arial, sans-serif">`,
		width, height, width, height)
	c.printf(`<style>
text { fill: #24292f; font-size: 13px }
.title { font-size: 21px; font-weight: bold }
.soft { fill: #57606a }
.panel { font-size: 16px; font-weight: bold }
.name { text-anchor: end; font-weight: bold }
.tick { text-anchor: middle; fill: #57606a; font-size: 12px }
.bad { fill: #b00020; font-weight: bold }
.lane { fill: #f3f5f8 }
.grid { stroke: #d8dee4; stroke-width: 1 }
.moment { stroke: #b00020; stroke-width: 1.2; stroke-dasharray: 3 3 }
.asleep { stroke: #b00020; stroke-width: 3; stroke-dasharray: 7 5 }
.cross { stroke: #b00020; stroke-width: 4.5; stroke-linecap: round }
.good { fill: #1a7f37; font-weight: bold }
.value { fill: none; stroke: #0969da; stroke-width: 2 }
.r { fill-opacity: .62 }`)
	for id := 1; id <= clients; id++ {
		c.printf(".c%d { fill: %s }", id, colour(id, clients))
	}
	c.printf("</style>")
	c.printf(`<rect width="%d" height="%d" fill="#ffffff"/>`, width, height)
}

// colour gives neighbours in number hues that are far apart, by the golden angle. The holder that stalls is black.
func colour(id, clients int) string {
	if id == clients {
		return "#24292f"
	}
	hue := (200 + (id-1)*137) % 360
	lightness := []int{46, 58, 38}[(id-1)/8%3]
	return fmt.Sprintf("hsl(%d, 62%%, %d%%)", hue, lightness)
}

func (d *drawing) title() {
	d.text("title", 20, 36, "Who held what when")
	line := "Each lane is a name, each bar a section under its lock."
	if d.story != nil {
		line = fmt.Sprintf("A holder of %s stands still past its lease and then writes late; "+
			"the others work on, and the storage refuses the write by its token.",
			d.story.fence.Resource)
	}
	d.text("soft", 20, 60, line)
}

// legend is a row of clients and one of shapes.
func (d *drawing) legend() {
	perRow := (plotRight - 20) / legendStep
	for id := 1; id <= d.clients; id++ {
		x, y := float64(20+(id-1)%perRow*legendStep), float64(legendTop+(id-1)/perRow*26)
		label := clientName(id)
		if id == d.clients {
			label = "the staller"
		}
		d.printf(`<rect class="c%d" x="%.0f" y="%.0f" width="14" height="14" rx="2"/>`, id, x, y)
		d.text("", x+20, y+12, label)
	}
	y := float64(legendTop + 26*(1+(d.clients-1)/perRow))
	d.printf(`<rect class="c1" x="20" y="%.0f" width="14" height="16"/>`, y-1)
	d.text("soft", 40, y+12, "write: alone, the lane's full height")
	d.printf(`<rect class="c1 r" x="290" y="%.0f" width="26" height="5"/>`, y)
	d.printf(`<rect class="c2 r" x="296" y="%.0f" width="26" height="5"/>`, y+8)
	d.text("soft", 330, y+12, "read: side by side, stacked")
	d.printf(`<line class="asleep" x1="530" y1="%.0f" x2="564" y2="%.0f"/>`, y+7, y+7)
	d.text("soft", 572, y+12, "lease lost, its holder has not noticed")
	d.cross(842, y+7, 6)
	d.text("soft", 856, y+12, "late write, refused")
}

// axis has a line every so many milliseconds, ten or so in all.
func (d *drawing) axis(top, bottom int) {
	span := d.to.Sub(d.from)
	step := time.Millisecond
	for _, next := range []time.Duration{2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 60000} {
		if span/step > 16 {
			step = next * time.Millisecond
		}
	}
	for at := time.Duration(0); at <= span; at += step {
		x := d.x(d.from.Add(at))
		d.printf(`<line class="grid" x1="%.1f" y1="%d" x2="%.1f" y2="%d" opacity=".6"/>`, x, top, x, bottom-laneGap/2)
		d.text("tick", x, float64(bottom+10), fmt.Sprintf("%d ms", at.Milliseconds()))
	}
}

func (d *drawing) footer(y int) {
	if d.left > 0 {
		d.text("soft", 20, float64(y), fmt.Sprintf(
			"%d more sections are not drawn: at most %d names and the %d longest sections are.",
			d.left, maxLanes, maxDrawn))
	}
}
