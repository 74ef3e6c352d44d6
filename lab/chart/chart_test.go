package chart_test

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed74116694/fencelock/lab/chart"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// saved returns the text of the drawing, which is XML and has no figure that is none.
func saved(t *testing.T, drawing interface{ Save(file string) error }) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "chart.svg")
	require.NoError(t, drawing.Save(file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotContains(t, string(text), "NaN")
	require.NotContains(t, string(text), "Inf")
	for decoder := xml.NewDecoder(strings.NewReader(string(text))); ; {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return string(text)
		} else {
			require.NoError(t, err)
		}
	}
}

func TestLines(t *testing.T) {
	lines := chart.Lines{
		Title: "a < b", XLabel: "goroutines", YLabel: "pairs/s",
		Series: []chart.Series{
			{Name: "one & all", X: []float64{1, 64, 1024}, Y: []float64{100, 2000, 50000}},
			{Name: "floor", Dashed: true, X: []float64{1, 64}, Y: []float64{0, 3000}},
		},
	}
	for _, lines.LogY = range []bool{false, true} {
		svg := saved(t, lines)
		for _, text := range []string{"a &lt; b", "one &amp; all", "floor", "goroutines", "pairs/s"} {
			require.Contains(t, svg, ">"+text+"</text>")
		}
		require.Contains(t, svg, ">1024</text>", "each count has a tick")
		require.Contains(t, svg, "stroke-dasharray:6,4")
	}
}

func TestDots(t *testing.T) {
	for _, log := range []bool{false, true} {
		dots := []chart.Dot{{Name: "first", Value: 70, Strong: true}, {Name: "second", Value: 3123}}
		svg := saved(t, chart.Dots{Title: "t", Label: "us", Log: log, Dots: dots})
		for _, text := range []string{"first", "second", "70", "3123", "us"} {
			require.Contains(t, svg, ">"+text+"</text>")
		}
		require.Equal(t, 1, strings.Count(svg, "fill:#0072B2"), "one is highlighted")
	}
}

func TestNothingMeasured(t *testing.T) {
	one := func(y float64) []chart.Series { return []chart.Series{{Name: "a", X: []float64{1}, Y: []float64{y}}} }
	for name, drawing := range map[string]interface{ Save(file string) error }{
		"no lines":       chart.Lines{Title: "t"},
		"no dots":        chart.Dots{Title: "t"},
		"zeros":          chart.Dots{Title: "t", Log: true, Dots: []chart.Dot{{Name: "a"}}},
		"one zero":       chart.Lines{Title: "t", Series: one(0)},
		"one zero, log":  chart.Lines{Title: "t", Series: one(0), LogY: true},
		"one value, log": chart.Lines{Title: "t", Series: one(100), LogY: true},
	} {
		t.Run(name, func(t *testing.T) { require.Contains(t, saved(t, drawing), ">t</text>") })
	}
}
