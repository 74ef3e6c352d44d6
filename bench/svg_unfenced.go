package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Measures of the picture of one late write in two storages, in pixels.
const (
	panelGap     = 40
	panelWidth   = (width - 40 - panelGap) / 2
	panelLabel   = 110 // the width of the labels of its rows
	holderTop    = 134
	othersTop    = 184
	valueTop     = 254
	valueHeight  = 110
	panelBottom  = valueTop + valueHeight + 56
	beforeTheEnd = 60 * time.Millisecond // of the lease, at which the picture begins
	afterLate    = 50 * time.Millisecond
)

// writeUnfencedSVG draws the first late write of a run twice: as it went in the storage that checks no token, and in
// the one that does.
func writeUnfencedSVG(w io.Writer, t *timeline, clients int) error {
	d := new(canvas)
	d.begin(panelBottom+10, clients)
	story := t.told()
	if story == nil {
		d.text("title", 20, 36, "The run ended before the late write")
	} else {
		d.text("title", 20, 36, "One late write, two storages")
		d.text("soft", 20, 60, fmt.Sprintf("A holder of %s reads, stands still past its lease, and writes what it has "+
			"computed. The others hold the lock by then. Both storages saw all of it at the same moments.",
			story.fence.Resource))
		for i, guarded := range []bool{false, true} {
			p := &panel{canvas: d, left: 20 + i*(panelWidth+panelGap), story: story, guarded: guarded}
			p.from, p.to = story.lost.Add(-beforeTheEnd), story.late.Add(afterLate)
			p.draw(t)
		}
	}
	d.out.WriteString("</svg>\n")
	_, err := d.out.WriteTo(w)
	return err
}

// panel is the picture of one storage.
type panel struct {
	*canvas
	left     int
	from, to time.Time
	story    *stall
	guarded  bool
}

func (p *panel) draw(t *timeline) {
	p.holder()
	p.others(t)
	p.axis()
	replaced := p.values(t)
	s := p.story
	heading, class := "A storage that checks no token", "bad"
	verdict := fmt.Sprintf("accepted: %d becomes %d, newer writes lost: %d", replaced, s.wrote, replaced+1-s.wrote)
	if p.guarded {
		heading, class = "The same storage, with the token checked", "good"
		verdict = "refused: a newer token was here, writes lost: 0"
	}
	p.text("panel", float64(p.left), 104, heading)
	p.text(class, float64(p.left+panelLabel), panelBottom-10, verdict)
}

// x is the position of a moment; a moment outside the window is placed on its edge.
func (p *panel) x(at time.Time) float64 {
	part := float64(at.Sub(p.from)) / float64(p.to.Sub(p.from))
	return float64(p.left+panelLabel) + min(max(part, 0), 1)*(panelWidth-panelLabel)
}

func (p *panel) row(label string, top, height int) {
	p.printf(`<rect class="lane" x="%d" y="%d" width="%d" height="%d"/>`, p.left+panelLabel, top,
		panelWidth-panelLabel, height)
	p.text("name", float64(p.left+panelLabel-12), float64(top+height/2+5), label)
}

// holder draws the holder that stands still: its lease, and what it believes afterwards.
func (p *panel) holder() {
	const height = 30
	p.row("paused holder", holderTop, height)
	s := p.story
	p.printf(`<rect class="c%d" x="%.1f" y="%d" width="%.1f" height="%d"/>`, s.client, p.x(p.from), holderTop,
		p.x(s.lost)-p.x(p.from), height)
	p.printf(`<line class="asleep" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, p.x(s.lost), holderTop+height/2,
		p.x(s.late), holderTop+height/2)
	p.cross(p.x(s.late), holderTop+height/2, 8)
	p.text("soft", p.x(s.lost)-20, holderTop-8, "its lease ends")
	p.text("soft", p.x(s.late)-26, holderTop-8, "late write")
	for _, at := range []time.Time{s.lost, s.late} {
		p.printf(`<line class="moment" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, p.x(at), holderTop, p.x(at),
			valueTop+valueHeight)
	}
}

// others draws the sections of the next holders.
func (p *panel) others(t *timeline) {
	const height = 50
	p.row("next holders", othersTop, height)
	_, _, bars := t.window()
	for _, b := range bars {
		if b.fence.Resource != p.story.fence.Resource || b.client == p.story.client ||
			b.to.Before(p.from) || b.from.After(p.to) {
			continue
		}
		top, tall, class := othersTop, height, ""
		if !write(b.fence) {
			top, tall, class = othersTop+height/2, height/2, " r"
		}
		p.printf(`<rect class="c%d%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`, b.client, class, p.x(b.from), top,
			max(p.x(b.to)-p.x(b.from)-.5, .5), tall)
	}
}

// axis labels the time since the left edge.
func (p *panel) axis() {
	const step = 50 * time.Millisecond
	for at := time.Duration(0); at < p.to.Sub(p.from); at += step {
		p.text("tick", p.x(p.from.Add(at)), valueTop+valueHeight+16, fmt.Sprintf("%d ms", at.Milliseconds()))
	}
}

// values draws the stored counter as a line of steps. It returns the value that the late write replaced.
func (p *panel) values(t *timeline) (replaced uint64) {
	p.row("stored value", valueTop, valueHeight)
	all := t.history(p.story.fence.Resource, p.guarded, p.from, p.to)
	low, high := all[0].value, all[0].value
	for i, v := range all {
		low, high = min(low, v.value), max(high, v.value)
		if i > 0 && v.value == p.story.wrote && v.value < all[i-1].value {
			replaced = all[i-1].value
		}
	}
	y := func(value uint64) float64 {
		part := float64(value-low) / float64(max(high-low, 1))
		return valueTop + valueHeight - 8 - part*(valueHeight-16)
	}
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", p.x(p.from), y(all[0].value))
	for _, v := range all[1:] {
		fmt.Fprintf(&path, "H%.1fV%.1f", p.x(v.at), y(v.value))
	}
	p.printf(`<path class="value" d="%sH%.1f"/>`, &path, p.x(p.to))
	return replaced
}
