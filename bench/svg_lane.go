package main

import (
	"fmt"
	"time"
)

func (d *drawing) background(l lane) {
	d.printf(`<rect class="lane" x="%d" y="%d" width="%d" height="%d"/>`, plotLeft, l.y, plotRight-plotLeft, laneHeight)
	d.text("name", plotLeft-12, float64(l.y)+laneHeight/2+5, l.name)
}

// sections draws writers over the full height of their lane, and readers in rows so that none covers another.
func (d *drawing) sections(l lane) {
	rows, count := stack(l.bars)
	for i, b := range l.bars {
		top, height, class := float64(l.y), float64(laneHeight), ""
		if !write(b.fence) {
			height = float64(laneHeight) / float64(count)
			top += float64(rows[i]) * height
			height -= min(1, height/5)
			class = " r"
		}
		x := d.x(b.from)
		d.printf(`<rect class="c%d%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"><title>%s</title></rect>`,
			b.client, class, x, top, max(d.x(b.to)-x-.3, .4), height, d.caption(b))
	}
}

func (d *drawing) caption(b bar) string {
	return escape(fmt.Sprintf("%s, %v, token %v, %v", clientName(b.client), b.fence.Mode, b.fence.Token,
		b.to.Sub(b.from).Round(10*time.Microsecond)))
}

// minRows keeps a lone reader from looking like a writer.
const minRows = 4

// stack gives each reader the first row that is free when it begins. The bars are in order of their beginning.
func stack(bars []bar) (rows []int, count int) {
	var free []time.Time // for each row, the time from which it is free
	rows = make([]int, len(bars))
	for i, b := range bars {
		if write(b.fence) {
			continue
		}
		row := 0
		for row < len(free) && free[row].After(b.from) {
			row++
		}
		if row == len(free) {
			free = append(free, time.Time{})
		}
		free[row], rows[i] = b.to, row
	}
	return rows, max(len(free), minRows)
}

// drawStory marks the actions of the stalled holder, above and over its lane, which begins at y.
func (d *drawing) drawStory(y int) {
	s := d.story
	began, lost, late := d.x(s.began), d.x(s.lost), d.x(s.late)
	strip := float64(y) - 9
	d.printf(`<line class="moment" x1="%.1f" y1="%.1f" x2="%.1f" y2="%d"/>`, lost, strip, lost, y+laneHeight)
	d.printf(`<line class="moment" x1="%.1f" y1="%.1f" x2="%.1f" y2="%d"/>`, late, strip, late, y+laneHeight)
	d.printf(`<line class="asleep" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`, lost, strip, late, strip)
	d.cross(late, strip, 8)
	d.text("", began, strip-14, fmt.Sprintf("holds token %v and stands still", s.fence.Token))
	d.printf(`<text class="bad" text-anchor="end" x="%.1f" y="%.1f">%s</text>`, float64(plotRight), strip-14,
		escape(fmt.Sprintf("late write with token %v refused: token %v was seen", s.fence.Token, s.seen)))
}

func (c *canvas) cross(x, y, arm float64) {
	c.printf(`<path class="cross" d="M%.1f %.1fL%.1f %.1fM%.1f %.1fL%.1f %.1f"/>`,
		x-arm, y-arm, x+arm, y+arm, x-arm, y+arm, x+arm, y-arm)
}
