package main

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

// picture records who held what and what was written, until shortly after the first late write, and draws that one
// twice: as it went in the storage that checks no token, and in the one that does.
type picture struct {
	mu       sync.Mutex
	bars     []bar
	versions []version
	story    *stall
}

// bar is one critical section.
type bar struct {
	client   int
	fence    fencing.Fence
	from, to time.Time
}

// version is a counter's value from a moment on.
type version struct {
	cell
	at    time.Time
	value uint64
}

// stall is the story of a stalled holder.
type stall struct {
	client     int
	name       string
	lost, late time.Time
	wrote      uint64 // where no token is checked
}

// The picture begins before the end of the lease, and ends after the late write.
const (
	beforeLost = 60 * time.Millisecond
	afterLate  = 50 * time.Millisecond
)

func (p *picture) add(b bar) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.story == nil || b.from.Before(p.story.late.Add(afterLate)) {
		p.bars = append(p.bars, b)
	}
}

func (p *picture) wrote(c cell, value uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := time.Now(); p.story == nil || now.Before(p.story.late.Add(afterLate)) {
		p.versions = append(p.versions, version{c, now, value})
	}
}

// tell ends the recording, but for the margin. Only the first story counts.
func (p *picture) tell(s stall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.story == nil {
		p.story = &s
	}
}

// Measures, in pixels.
const (
	width       = 1400
	panelGap    = 40
	panelWidth  = (width - 40 - panelGap) / 2
	panelLabel  = 110 // the width of the labels of its rows
	holderTop   = 134
	othersTop   = 184
	valueTop    = 254
	valueHeight = 110
	panelBottom = valueTop + valueHeight + 56
)

const style = `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="Helvetica, sans-serif">
<style>
text { fill: #24292f; font-size: 13px }
.title { font-size: 21px; font-weight: bold }
.soft { fill: #57606a }
.panel { font-size: 16px; font-weight: bold }
.name { text-anchor: end; font-weight: bold }
.tick { text-anchor: middle; fill: #57606a; font-size: 12px }
.bad { fill: #b00020; font-weight: bold }
.good { fill: #1a7f37; font-weight: bold }
.lane { fill: #f3f5f8 }
.moment { stroke: #b00020; stroke-width: 1.2; stroke-dasharray: 3 3 }
.asleep { stroke: #b00020; stroke-width: 3; stroke-dasharray: 7 5 }
.cross { stroke: #b00020; stroke-width: 4.5; stroke-linecap: round }
.value { fill: none; stroke: #0969da; stroke-width: 2 }
</style>
<rect width="100%%" height="100%%" fill="#ffffff"/>
`

// svg returns the drawing. The last of the clients is the holder that stalls.
func (p *picture) svg(clients int) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &panel{picture: p, clients: clients}
	d.printf(style, width, panelBottom+10)
	if p.story == nil {
		d.text("title", 20, 36, "The run ended before the late write")
	} else {
		d.text("title", 20, 36, "One late write, two storages")
		d.text("soft", 20, 60, fmt.Sprintf("A holder of %s reads, stands still past its lease, and writes what it has "+
			"computed. The others hold the lock by then. Both storages saw all of it at the same moments.", p.story.name))
		d.begin, d.end = p.story.lost.Add(-beforeLost), p.story.late.Add(afterLate)
		for i, guarded := range []bool{false, true} {
			d.left, d.guarded = 20+i*(panelWidth+panelGap), guarded
			d.draw()
		}
	}
	d.printf("</svg>\n")
	return d.out.Bytes()
}

// panel draws one storage.
type panel struct {
	*picture
	out        bytes.Buffer
	clients    int
	left       int
	begin, end time.Time
	guarded    bool
}

func (d *panel) printf(format string, args ...any) { fmt.Fprintf(&d.out, format, args...) }

func (d *panel) text(class string, x, y float64, text string) {
	d.printf(`<text class="%s" x="%.1f" y="%.1f">%s</text>`+"\n", class, x, y, text)
}

// colour gives neighbours in number hues that are far apart, by the golden angle. The holder that stalls is black.
func (d *panel) colour(client int) string {
	if client == d.clients {
		return "#24292f"
	}
	return fmt.Sprintf("hsl(%d, 62%%, %d%%)", (200+(client-1)*137)%360, []int{46, 58, 38}[(client-1)/8%3])
}

// x is the position of a moment; a moment outside the window is placed on its edge.
func (d *panel) x(at time.Time) float64 {
	part := float64(at.Sub(d.begin)) / float64(d.end.Sub(d.begin))
	return float64(d.left+panelLabel) + min(max(part, 0), 1)*(panelWidth-panelLabel)
}

func (d *panel) row(label string, top, height int) {
	d.printf(`<rect class="lane" x="%d" y="%d" width="%d" height="%d"/>`+"\n", d.left+panelLabel, top,
		panelWidth-panelLabel, height)
	d.text("name", float64(d.left+panelLabel-12), float64(top+height/2+5), label)
}

func (d *panel) bar(client int, from, to time.Time, top, height int, opacity float64) {
	d.printf(`<rect fill="%s" fill-opacity="%.2f" x="%.1f" y="%d" width="%.1f" height="%d"/>`+"\n", d.colour(client),
		opacity, d.x(from), top, max(d.x(to)-d.x(from)-.5, .5), height)
}

func (d *panel) draw() {
	const height = 30
	s := d.story
	d.row("paused holder", holderTop, height)
	d.bar(s.client, d.begin, s.lost, holderTop, height, 1)
	lost, late, middle := d.x(s.lost), d.x(s.late), holderTop+height/2
	d.printf(`<path class="asleep" d="M%.1f %dH%.1f"/><path class="cross" d="M%.1f %dl16 16m0 -16l-16 16"/>`+"\n",
		lost, middle, late, late-8, middle-8)
	d.text("soft", lost-20, holderTop-8, "its lease ends")
	d.text("soft", late-26, holderTop-8, "late write")
	d.others()
	d.row("stored value", valueTop, valueHeight)
	d.printf(`<path class="moment" d="M%.1f %dV%dM%.1f %dV%d"/>`+"\n", lost, holderTop, valueTop+valueHeight, late,
		holderTop, valueTop+valueHeight)
	for at := time.Duration(0); at < d.end.Sub(d.begin); at += 50 * time.Millisecond {
		d.text("tick", d.x(d.begin.Add(at)), valueTop+valueHeight+16, fmt.Sprintf("%d ms", at.Milliseconds()))
	}
	replaced := d.values()
	heading, class := "A storage that checks no token", "bad"
	verdict := fmt.Sprintf("accepted: %d becomes %d, newer writes lost: %d", replaced, s.wrote, replaced+1-s.wrote)
	if d.guarded {
		heading, class = "The same storage, with the token checked", "good"
		verdict = "refused: a newer token was here, writes lost: 0"
	}
	d.text("panel", float64(d.left), 104, heading)
	d.text(class, float64(d.left+panelLabel), panelBottom-10, verdict)
}

// others draws the sections of the next holders, those of readers half as high.
func (d *panel) others() {
	const height = 50
	d.row("next holders", othersTop, height)
	for _, b := range d.bars {
		switch {
		case b.fence.Resource != d.story.name || b.client == d.story.client || b.to.Before(d.begin) || b.from.After(d.end):
		case b.fence.Mode == rwlock.Read:
			d.bar(b.client, b.from, b.to, othersTop+height/2, height/2, .62)
		default:
			d.bar(b.client, b.from, b.to, othersTop, height, 1)
		}
	}
}

// values draws the stored counter as a line of steps. It returns the value that the late write replaced.
func (d *panel) values() (replaced uint64) {
	all := []version{{}} // the first is that which stood at the beginning
	for _, v := range d.versions {
		switch {
		case v.cell != cell{d.story.name, d.guarded} || v.at.After(d.end):
		case v.at.Before(d.begin):
			all[0] = v
		default:
			all = append(all, v)
		}
	}
	low, high := all[0].value, all[0].value
	for i, v := range all {
		low, high = min(low, v.value), max(high, v.value)
		if i > 0 && v.value == d.story.wrote && v.value < all[i-1].value {
			replaced = all[i-1].value
		}
	}
	y := func(value uint64) float64 {
		return valueTop + valueHeight - 8 - float64(value-low)/float64(max(high-low, 1))*(valueHeight-16)
	}
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", d.x(d.begin), y(all[0].value))
	for _, v := range all[1:] {
		fmt.Fprintf(&path, "H%.1fV%.1f", d.x(v.at), y(v.value))
	}
	d.printf(`<path class="value" d="%sH%.1f"/>`+"\n", &path, d.x(d.end))
	return replaced
}
