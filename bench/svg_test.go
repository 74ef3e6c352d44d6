package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed74116694/fencelock/fencing"
	"github.com/seed74116694/fencelock/rwlock"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }

func section(client int, name string, mode rwlock.Mode, from, to int) bar {
	f := fencing.Fence{Resource: name, Token: fencing.Token(1000 + from), Mode: mode}
	return bar{client: client, fence: f, from: at(from), to: at(to)}
}

func draw(t *testing.T, tl *timeline, names []string, clients int) string {
	t.Helper()
	return drawn(t, func(w io.Writer) error { return writeSVG(w, tl, names, clients) })
}

func drawn(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, write(&out))
	decoder := xml.NewDecoder(bytes.NewReader(out.Bytes()))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err, "it must be well-formed")
		}
	}
	return out.String()
}

func story(name string) *stall {
	f := fencing.Fence{Resource: name, Token: 1100, Mode: rwlock.Write}
	return &stall{client: 3, fence: f, began: at(100), lost: at(600), late: at(700), seen: 1605}
}

func TestSVGTellsTheStory(t *testing.T) {
	tl := &timeline{story: story("b<1>&\"")}
	tl.bars = []bar{
		section(1, "a", rwlock.Read, 120, 300), section(2, "a", rwlock.Read, 130, 310),
		section(3, "b<1>&\"", rwlock.Write, 100, 600), section(1, "b<1>&\"", rwlock.Write, 605, 620),
		section(1, "a", rwlock.Write, 2000, 2010), // after the picture
	}
	svg := draw(t, tl, []string{"a", "b<1>&\""}, 3)
	require.Contains(t, svg, "late write with token 1100 refused: token 1605 was seen")
	require.Equal(t, 4, strings.Count(svg, "<title>"), "one bar for each section in the window")
	story := strings.Index(svg, ">b&lt;1&gt;&amp;&quot;<")
	require.Less(t, story, strings.Index(svg, ">a<"), "the story's lane is the first")
	require.Equal(t, 2, strings.Count(svg, `class="cross"`), "in the legend and at the late write")
}

func TestUnfencedSVGShowsWhatIsLost(t *testing.T) {
	s := story("a")
	s.wrote = 8
	wrote := func(ms int, value uint64, guarded bool) version {
		return version{resource: "a", at: at(ms), value: value, guarded: guarded}
	}
	tl := &timeline{story: s, versions: []version{
		wrote(10, 7, false), wrote(10, 7, true), // before the window
		wrote(610, 8, false), wrote(610, 8, true), wrote(690, 9, false), wrote(690, 9, true),
		wrote(700, 8, false), wrote(720, 9, false), wrote(720, 10, true), wrote(999, 1, true),
	}}
	tl.bars = []bar{
		section(1, "a", rwlock.Write, 605, 612), section(2, "a", rwlock.Read, 640, 650),
		section(1, "b", rwlock.Write, 605, 612), section(3, "a", rwlock.Write, 100, 600),
	}
	svg := drawn(t, func(w io.Writer) error { return writeUnfencedSVG(w, tl, 3) })
	require.Contains(t, svg, "accepted: 9 becomes 8, newer writes lost: 2")
	require.Contains(t, svg, "writes lost: 0")
	require.Equal(t, 2, strings.Count(svg, `class="cross"`))
	require.Equal(t, 2, strings.Count(svg, `class="c1"`), "the others of this name, in both storages")
	require.Equal(t, 2, strings.Count(svg, `class="c2 r"`))
	require.Contains(t, drawn(t, func(w io.Writer) error { return writeUnfencedSVG(w, new(timeline), 3) }), "ended before")
}

func TestSVGWithoutAnything(t *testing.T) {
	svg := draw(t, new(timeline), []string{"a"}, 2)
	require.NotContains(t, svg, "refused: token")
}

func TestSVGStaysSmall(t *testing.T) {
	tl := &timeline{story: story("name/7")}
	var names []string
	for n := range 100 {
		names = append(names, fmt.Sprint("name/", n))
	}
	for i := range maxBars {
		tl.bars = append(tl.bars, section(1+i%256, names[i%100], rwlock.Read, i%700, i%700+3))
	}
	svg := draw(t, tl, names, 257)
	require.Less(t, len(svg), 1<<20)
	require.Contains(t, svg, "more sections are not drawn")
}

func TestStackedReadersDoNotCoverEachOther(t *testing.T) {
	var bars []bar
	for i := range 40 {
		bars = append(bars, section(1, "a", rwlock.Read, 10*i, 10*i+25+i%7))
	}
	rows, count := stack(bars)
	for i := range bars {
		require.Less(t, rows[i], count)
		for j := range i {
			require.False(t, rows[i] == rows[j] && bars[j].to.After(bars[i].from), "%d covers %d", i, j)
		}
	}
	_, count = stack(bars[:1])
	require.Equal(t, minRows, count)
}

func TestTimelineEndsAfterTheStory(t *testing.T) {
	tl := new(timeline)
	tl.tell(*story("a"))
	tl.tell(stall{})
	require.Equal(t, *story("a"), *tl.story, "the first counts")
	from, to, _ := tl.window()
	require.Equal(t, at(100).Add(-margin), from)
	require.Equal(t, at(700).Add(margin), to)

	var none *timeline
	none.tell(stall{}) // without -svg nothing is recorded
	none.add(1, nil, at(0), at(1))
}
