package rwlockotel_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/otlptranslator"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.yaml.in/yaml/v3"

	"github.com/seed74116694/fencelock/internal/test/expect"
)

// series returns the names that Prometheus has of all metrics, each with its labels, by the rules of the exporter.
func series(t *testing.T) map[string][]string {
	t.Helper()
	names := otlptranslator.NewMetricNamer("", otlptranslator.UnderscoreEscapingWithSuffixes)
	labels := otlptranslator.LabelNamer{}
	all := map[string][]string{}
	for _, m := range full(t).collect(t) {
		of := otlptranslator.Metric{Name: m.Name, Unit: m.Unit, Type: otlptranslator.MetricTypeGauge}
		var sets []attribute.Set
		suffixes := []string{""}
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			of.Type, suffixes = otlptranslator.MetricTypeHistogram, []string{"_bucket", "_sum", "_count"}
			for _, p := range data.DataPoints {
				sets = append(sets, p.Attributes)
			}
		case metricdata.Sum[int64]:
			if data.IsMonotonic {
				of.Type = otlptranslator.MetricTypeMonotonicCounter
			}
			for _, p := range data.DataPoints {
				sets = append(sets, p.Attributes)
			}
		default:
			t.Fatalf("%s: %T", m.Name, m.Data)
		}
		name := expect.NoError(names.Build(of)).In(t)
		keys := map[string]bool{}
		for _, set := range sets {
			for _, a := range set.ToSlice() {
				label := expect.NoError(labels.Build(string(a.Key))).In(t)
				keys[label] = true
			}
		}
		for _, suffix := range suffixes {
			all[name+suffix] = slices.Sorted(maps.Keys(keys))
			if suffix == "_bucket" {
				all[name+suffix] = append(all[name+suffix], "le")
			}
		}
	}
	return all
}

var (
	seriesName = regexp.MustCompile(`\bfencelock_\w+`)
	grouped    = regexp.MustCompile(`\bby \(([^)]*)\)`)
	legendName = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}`)
)

// missing returns the names in an expression or a legend that no metric or target has.
func missing(all map[string][]string, expr, legend string) (wrong []string) {
	known := []string{"job", "instance"}
	var labels []string
	for _, by := range grouped.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, strings.Split(by[1], ", ")...)
	}
	metrics := 0
	for _, name := range seriesName.FindAllString(grouped.ReplaceAllString(expr, ""), -1) {
		of, ok := all[name]
		if !ok {
			wrong = append(wrong, name)
		}
		metrics++
		known = append(known, of...)
	}
	if metrics == 0 {
		wrong = append(wrong, "no metric in "+expr)
	}
	for _, label := range legendName.FindAllStringSubmatch(legend, -1) {
		if !slices.Contains(labels, label[1]) {
			wrong = append(wrong, "not grouped by "+label[1])
		}
	}
	for _, label := range labels {
		if !slices.Contains(known, label) {
			wrong = append(wrong, label)
		}
	}
	return wrong
}

func TestBoardRulesNoticeWhatIsMissing(t *testing.T) {
	all := map[string][]string{"fencelock_lost_total": {"fencelock_reason"}}
	const lost = "sum by (job, fencelock_reason) (increase(fencelock_lost_total[5m])) > 0"
	require.Empty(t, missing(all, lost, "{{fencelock_reason}}"))
	require.Equal(t, []string{"not grouped by instance"}, missing(all, lost, "{{ $labels.instance }}"))
	require.Equal(t, []string{"fencelock_lost", "reason"}, missing(all, "sum by (reason) (fencelock_lost)", ""))
	require.Len(t, missing(all, "up", ""), 1)
}

func TestAlertsAreOnMetricsThatThereAre(t *testing.T) {
	text := expect.NoError(os.ReadFile("prometheus-rules.yaml")).In(t)
	var file struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         time.Duration     `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	page := observability(t)
	all := series(t)
	require.Len(t, file.Groups, 1)
	require.Len(t, file.Groups[0].Rules, 4)
	for _, rule := range file.Groups[0].Rules {
		require.Empty(t, missing(all, rule.Expr, rule.Annotations["summary"]+rule.Annotations["description"]), rule.Alert)
		require.NotEmpty(t, rule.Labels["severity"], rule.Alert)
		require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		require.Contains(t, page, "| `"+rule.Alert+"` ", "what to do about it")
	}
}

// observability is the page about all this. A downloaded module is without it.
func observability(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("../../go.work"); os.IsNotExist(err) {
		t.Skip("no ../../go.work: run it in a clone of the repository")
	}
	return string(expect.NoError(os.ReadFile("../../docs/operate.md")).In(t))
}

type dashboard struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	ID            *int   `json:"id"`
	Panels        []struct {
		ID         int        `json:"id"`
		Title      string     `json:"title"`
		Type       string     `json:"type"`
		Datasource datasource `json:"datasource"`
		GridPos    grid       `json:"gridPos"`
		Targets    []struct {
			RefID        string     `json:"refId"`
			Expr         string     `json:"expr"`
			LegendFormat string     `json:"legendFormat"`
			Datasource   datasource `json:"datasource"`
		} `json:"targets"`
	} `json:"panels"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
}

type (
	datasource struct{ Type, UID string }
	grid       struct{ X, Y, W, H int }
)

func (g grid) overlaps(o grid) bool {
	return g.X < o.X+o.W && o.X < g.X+g.W && g.Y < o.Y+o.H && o.Y < g.Y+g.H
}

func TestDashboardIsOnMetricsThatThereAre(t *testing.T) {
	text := expect.NoError(os.ReadFile("grafana-dashboard.json")).In(t)
	var board dashboard
	require.NoError(t, json.Unmarshal(text, &board))
	require.NotEmpty(t, board.UID)
	require.NotEmpty(t, board.Title)
	require.Positive(t, board.SchemaVersion)
	require.Nil(t, board.ID, "Grafana gives it one")

	all := series(t)
	variables := map[string]bool{"__range": true, "__rate_interval": true}
	for _, v := range board.Templating.List {
		variables[v.Name] = true
		if v.Type == "query" {
			require.Empty(t, missing(all, v.Definition, ""), v.Name)
		}
	}
	used := map[string]bool{}
	ids := map[int]bool{}
	for i, panel := range board.Panels {
		require.False(t, ids[panel.ID], panel.Title)
		ids[panel.ID] = true
		require.NotEmpty(t, panel.Title)
		require.Contains(t, []string{"stat", "timeseries"}, panel.Type)
		require.NotEmpty(t, panel.Targets, panel.Title)
		require.LessOrEqual(t, panel.GridPos.X+panel.GridPos.W, 24, panel.Title)
		for _, other := range board.Panels[:i] {
			require.False(t, panel.GridPos.overlaps(other.GridPos), "%s and %s", panel.Title, other.Title)
		}
		refs := map[string]bool{}
		for _, target := range panel.Targets {
			require.Empty(t, missing(all, target.Expr, target.LegendFormat), panel.Title)
			require.False(t, refs[target.RefID], panel.Title)
			refs[target.RefID] = true
			for _, d := range []datasource{panel.Datasource, target.Datasource} {
				require.Equal(t, datasource{"prometheus", "${datasource}"}, d)
			}
			for _, v := range regexp.MustCompile(`\$(\w+)`).FindAllStringSubmatch(target.Expr, -1) {
				require.True(t, variables[v[1]], "%s: $%s", panel.Title, v[1])
			}
			for _, name := range seriesName.FindAllString(target.Expr, -1) {
				used[name] = true
			}
		}
	}
	require.True(t, variables["datasource"])
	for name := range all { // a metric that is not worth a panel has a reason
		switch name {
		case "fencelock_adopted_total", "fencelock_detached_total", "fencelock_expired_total",
			"fencelock_events_dropped_total": // seldom used
		case "fencelock_wait_time_seconds_sum", "fencelock_wait_time_seconds_count",
			"fencelock_hold_time_seconds_sum", "fencelock_hold_time_seconds_count": // beside their buckets
		default:
			require.True(t, used[name], "%s is on no panel", name)
		}
	}
}
