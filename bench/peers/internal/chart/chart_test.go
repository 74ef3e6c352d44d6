package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/bench/peers/internal/chart"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func requireXML(t *testing.T, svg string) {
	t.Helper()
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else {
			require.NoError(t, err)
		}
	}
}

func TestLines(t *testing.T) {
	svg := chart.Lines{
		Title: "a < b", XLabel: "goroutines", YLabel: "pairs/s",
		Series: []chart.Series{
			{Name: "one & all", X: []float64{1, 64, 1024}, Y: []float64{100, 2000, 50000}},
			{Name: "floor", Dashed: true, X: []float64{1, 64}, Y: []float64{0, 3000}},
		},
	}.SVG()
	requireXML(t, svg)
	require.Contains(t, svg, "a &lt; b")
	require.Contains(t, svg, "one &amp; all: 50k at 1024")
	require.Equal(t, 2, strings.Count(svg, "<polyline"))
	require.Contains(t, svg, `points="100.0,`, "the least point lies at the left edge")
	require.Contains(t, svg, ">1024</text>")
	require.NotContains(t, svg, "NaN")
}

func TestBars(t *testing.T) {
	for _, log := range []bool{false, true} {
		bars := []chart.Bar{{Name: "a", Value: 70}, {Name: "b", Value: 3100}}
		svg := chart.Bars{Title: "t", Label: "us", Log: log, Bars: bars}.SVG()
		requireXML(t, svg)
		require.Contains(t, svg, ">3100</text>")
		require.NotContains(t, svg, "NaN")
	}
}

func TestNothingMeasured(t *testing.T) {
	for name, svg := range map[string]string{
		"no lines": chart.Lines{Title: "t"}.SVG(),
		"no bars":  chart.Bars{Title: "t"}.SVG(),
		"zeros":    chart.Bars{Title: "t", Log: true, Bars: []chart.Bar{{Name: "a"}}}.SVG(),
		"one zero": chart.Lines{Title: "t", Series: []chart.Series{{Name: "a", X: []float64{1}, Y: []float64{0}}}}.SVG(),
	} {
		requireXML(t, svg)
		require.NotContains(t, svg, "NaN", name)
		require.NotContains(t, svg, "Inf", name)
	}
}
