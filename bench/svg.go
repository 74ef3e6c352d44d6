package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Measures of the picture, in pixels.
const (
	width       = 1400
	plotLeft    = 130
	plotRight   = width - 30
	laneHeight  = 84
	laneGap     = 16
	storyHeight = 40 // above the lane of the stall
	legendStep  = 104
	legendTop   = 84
)

// They keep the picture readable, and below a megabyte, for runs of any size.
const (
	maxLanes = 12
	maxDrawn = 6000
)

// canvas is the SVG that has been written so far.
type canvas struct{ out bytes.Buffer }

// drawing turns a timeline into SVG.
type drawing struct {
	canvas
	from, to time.Time
	story    *stall
	clients  int // the last one is the holder that stalls
	left     int // sections that are not drawn
}

// draw writes the picture into the file of -svg, if there is one.
func (b *bench) draw() error {
	if b.svg == nil {
		return nil
	}
	w := bufio.NewWriter(b.svg)
	var err error
	if b.cfg.unfenced {
		err = writeUnfencedSVG(w, b.stage.picture, len(b.team))
	} else {
		err = writeSVG(w, b.stage.picture, b.stage.names, len(b.team))
	}
	return errors.Join(err, w.Flush(), b.svg.Sync())
}

// writeSVG draws one lane for each name, with a bar for each section, and the story of the stalled holder.
func writeSVG(w io.Writer, t *timeline, names []string, clients int) error {
	from, to, bars := t.window()
	d := &drawing{from: from, to: to, story: t.story, clients: clients}
	lanes := d.lanes(names, bars)

	top := legendTop + 26*(1+(clients+1)/((plotRight-20)/legendStep)) + 34
	height := top + len(lanes)*(laneHeight+laneGap) + 56
	if d.story != nil {
		height += storyHeight
	}
	d.begin(height, clients)
	d.title()
	d.legend()
	bottom := top
	for i := range lanes {
		if d.tells(lanes[i]) {
			bottom += storyHeight
		}
		lanes[i].y = bottom
		d.background(lanes[i])
		bottom += laneHeight + laneGap
	}
	d.axis(top-8, bottom)
	for _, l := range lanes {
		d.sections(l)
	}
	if d.story != nil { // the first lane is the story's
		d.drawStory(top + storyHeight)
	}
	d.footer(bottom + 44)
	d.out.WriteString("</svg>\n")
	_, err := w.Write(d.out.Bytes())
	return err
}

// lane is one name and its sections.
type lane struct {
	name string
	bars []bar
	y    int
}

func (d *drawing) tells(l lane) bool { return d.story != nil && d.story.fence.Resource == l.name }

// lanes chooses the content of the picture: the story's name first, and if there is too much, the longest sections.
func (d *drawing) lanes(names []string, bars []bar) []lane {
	byName := make(map[string][]bar)
	if d.left = max(0, len(bars)-maxDrawn); d.left > 0 {
		slices.SortFunc(bars, func(a, b bar) int { return cmp.Compare(b.to.Sub(b.from), a.to.Sub(a.from)) })
		bars = bars[:maxDrawn]
	}
	for _, b := range bars {
		byName[b.fence.Resource] = append(byName[b.fence.Resource], b)
	}
	names = slices.Clone(names)
	slices.SortStableFunc(names, func(a, b string) int {
		if d.story != nil && a != b && (a == d.story.fence.Resource || b == d.story.fence.Resource) {
			return map[bool]int{true: -1, false: 1}[a == d.story.fence.Resource]
		}
		return 0
	})
	var lanes []lane
	for _, name := range names {
		if len(lanes) == maxLanes {
			d.left += len(byName[name])
			continue
		}
		slices.SortFunc(byName[name], func(a, b bar) int { return a.from.Compare(b.from) })
		lanes = append(lanes, lane{name: name, bars: byName[name]})
	}
	return lanes
}

// x is the position of a moment; a moment outside the window is placed on its edge.
func (d *drawing) x(at time.Time) float64 {
	span := max(d.to.Sub(d.from), time.Millisecond)
	part := float64(at.Sub(d.from)) / float64(span)
	return plotLeft + min(max(part, 0), 1)*(plotRight-plotLeft)
}

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(&c.out, format+"\n", args...) }

func (c *canvas) text(class string, x, y float64, text string) {
	c.printf(`<text class="%s" x="%.1f" y="%.1f">%s</text>`, class, x, y, escape(text))
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

func escape(s string) string { return escaper.Replace(s) }
