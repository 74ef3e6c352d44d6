package rwlockotel

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/seed74116694/fencelock/rwlock"
)

// statistic is an instrument whose values come from rwlock.Stats.
type statistic struct {
	name, unit, about string
	rises             bool // a counter, not a current number
	read              func(s rwlock.Stats) []value
}

// value is a value of an instrument. Its key separates the values of one instrument.
type value struct {
	n   int64
	key attribute.KeyValue
}

// one is for an instrument with a single value.
func one[N int | uint64](read func(s rwlock.Stats) N) func(rwlock.Stats) []value {
	return func(s rwlock.Stats) []value { return []value{{n: int64(read(s))}} }
}

// statistics are all fields of rwlock.Stats. Current numbers are up-down counters, because they add up over processes.
var statistics = []statistic{
	{"fencelock.acquired", "{lease}", "Leases granted.", true, one(func(s rwlock.Stats) uint64 { return s.Acquired })},
	{
		"fencelock.contended", "{lease}", "Leases granted after a wait.", true,
		one(func(s rwlock.Stats) uint64 { return s.Contended }),
	},
	{
		"fencelock.handed_off", "{lease}", "Leases granted by a hand-off from the previous holder.", true,
		one(func(s rwlock.Stats) uint64 { return s.HandedOff }),
	},
	{
		"fencelock.adopted", "{lease}", "Leases taken over from another process.", true,
		one(func(s rwlock.Stats) uint64 { return s.Adopted }),
	},
	{
		"fencelock.detached", "{lease}", "Leases detached for another process.", true,
		one(func(s rwlock.Stats) uint64 { return s.Detached }),
	},
	{"fencelock.failed", "{acquisition}", "Acquisitions that ended without a lease.", true, failures},
	{"fencelock.lost", "{lease}", "Leases lost.", true, losses},
	{
		"fencelock.expired", "{lease}", "Leases without renewal that ended with their TTL.", true,
		one(func(s rwlock.Stats) uint64 { return s.Expired }),
	},
	{
		"fencelock.unconfirmed", "{release}", "Releases not confirmed in time, or refused.", true,
		one(func(s rwlock.Stats) uint64 { return s.Unconfirmed }),
	},
	{
		"fencelock.renewed", "{renewal}", "Renewals confirmed.", true,
		one(func(s rwlock.Stats) uint64 { return s.Renewed }),
	},
	{
		"fencelock.renew_failed", "{renewal}", "Renewals not confirmed, and tried again.", true,
		one(func(s rwlock.Stats) uint64 { return s.RenewFailed }),
	},
	{
		"fencelock.events_dropped", "{event}", "Events not recorded, because too many were pending.", true,
		one(func(s rwlock.Stats) uint64 { return s.EventsDropped }),
	},
	{"fencelock.held", "{lease}", "Leases held.", false, one(func(s rwlock.Stats) int { return s.Held })},
	{
		"fencelock.waiting", "{acquisition}", "Acquisitions that wait.", false,
		one(func(s rwlock.Stats) int { return s.Waiting }),
	},
	{
		"fencelock.unreachable", "{acquisition}", "Acquisitions that wait without the answer of a quorum.", false,
		one(func(s rwlock.Stats) int { return s.Unreachable }),
	},
	{
		"fencelock.no_messages", "{acquisition}", "Acquisitions that poll, because messages do not arrive.", false,
		one(func(s rwlock.Stats) int { return s.NoMessages }),
	},
	{
		"fencelock.lingering", "{lease}", "Leases that an RWMutex keeps without a current user.", false,
		one(func(s rwlock.Stats) int { return s.Lingering }),
	},
}

// The causes of failures and the reasons of losses, as attributes.
const (
	causeKey  = attribute.Key("error.type")
	reasonKey = attribute.Key("fencelock.reason")

	contended = "contended"
	noQuorum  = "no_quorum"
	closed    = "closed"
	refused   = "refused"
)

func failures(s rwlock.Stats) []value {
	return []value{
		{int64(s.Failed.Contended), causeKey.String(contended)},
		{int64(s.Failed.NoQuorum), causeKey.String(noQuorum)},
		{int64(s.Failed.Closed), causeKey.String(closed)},
		{int64(s.Failed.Refused), causeKey.String(refused)},
	}
}

func losses(s rwlock.Stats) []value {
	counts := map[rwlock.Reason]uint64{
		rwlock.ReasonGone: s.Lost.Gone, rwlock.ReasonNotRenewed: s.Lost.NotRenewed, rwlock.ReasonPaused: s.Lost.Paused,
		rwlock.ReasonMaxHold: s.Lost.MaxHold, rwlock.ReasonBroken: s.Lost.Broken,
	}
	values := make([]value, 0, len(counts))
	for reason, n := range counts {
		values = append(values, value{int64(n), reasonKey.String(string(reason))})
	}
	return values
}

// bounds are the bucket boundaries that OpenTelemetry's conventions advise for the time of a database call, in seconds,
// and some larger ones, because locks are waited for and held for longer.
var bounds = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800}

// metrics are the instruments of a Telemetry.
type metrics struct {
	meter      metric.Meter
	attributes []attribute.KeyValue // of every measurement
	waitTime   metric.Float64Histogram
	holdTime   metric.Float64Histogram
	atRisk     metric.Int64Counter
	observed   []metric.Observable // for each of statistics
}

func newMetrics(meter metric.Meter, attributes []attribute.KeyValue) (m metrics, err error) {
	m.meter, m.attributes = meter, attributes
	histogram := func(name, about string) (h metric.Float64Histogram) {
		if err == nil {
			h, err = meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about),
				metric.WithExplicitBucketBoundaries(bounds...))
		}
		return h
	}
	m.waitTime = histogram("fencelock.wait_time", "Time from the call to the grant of a lease, or to the failure.")
	m.holdTime = histogram("fencelock.hold_time", "Time from the grant of a lease to its end.")
	if err == nil {
		m.atRisk, err = meter.Int64Counter("fencelock.at_risk", metric.WithUnit("{lease}"),
			metric.WithDescription("Leases near their end without a confirmed renewal."))
	}
	for _, s := range statistics {
		var i metric.Observable
		switch {
		case err != nil:
			return m, err
		case s.rises:
			i, err = meter.Int64ObservableCounter(s.name, metric.WithUnit(s.unit), metric.WithDescription(s.about))
		default:
			i, err = meter.Int64ObservableUpDownCounter(s.name, metric.WithUnit(s.unit), metric.WithDescription(s.about))
		}
		m.observed = append(m.observed, i)
	}
	return m, err
}

// report observes each statistic.
func (m *metrics) report(o metric.Observer, s rwlock.Stats) {
	for i, of := range statistics {
		for _, v := range of.read(s) {
			instrument := m.observed[i].(metric.Int64Observable)
			o.ObserveInt64(instrument, v.n, metric.WithAttributeSet(m.set(v.key)))
		}
	}
}

// set returns the attributes of a measurement: those of all, and the valid ones of these.
func (m *metrics) set(more ...attribute.KeyValue) attribute.Set {
	all := make([]attribute.KeyValue, 0, len(m.attributes)+len(more))
	all = append(all, m.attributes...)
	for _, a := range more {
		if a.Valid() {
			all = append(all, a)
		}
	}
	return attribute.NewSet(all...)
}
