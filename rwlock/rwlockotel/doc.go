// Package rwlockotel reports the acquisitions and leases of a locker to OpenTelemetry. It is a separate module, so that
// only its users depend on OpenTelemetry.
//
// A [Telemetry] has three parts:
//
//   - [Telemetry.Trace] is given to rwlock.New or redlock.New as rwlock.WithTrace. It records how
//     long acquisitions wait and how long leases are held, and makes a span of each acquisition that had to wait.
//   - [Telemetry.Observe] exports the counters of rwlock.Stats.
//   - [Telemetry.Section] runs the work under a lock inside a span.
//
// # Metrics
//
// The counters and the current numbers come from rwlock.Stats, read when the metrics are collected: they are exact, and
// they are exported with zeros from the first collection on.
//
//	fencelock.acquired        leases granted
//	fencelock.contended       of these: after a wait
//	fencelock.handed_off      of these: by a hand-off from the previous holder
//	fencelock.adopted         of these: from another process, by Adopt
//	fencelock.detached        leases that Detach has ended
//	fencelock.failed          acquisitions that gave up, by error.type: contended, no_quorum, closed, refused
//	fencelock.lost            leases lost, by fencelock.reason: gone, not renewed, paused, max hold, broken
//	fencelock.expired         leases WithoutRenewal that ended with their TTL
//	fencelock.unconfirmed     releases not confirmed in time, or refused
//	fencelock.renewed         renewals confirmed
//	fencelock.renew_failed    renewals not confirmed, and tried again
//	fencelock.events_dropped  events that were not recorded, because too many were pending
//	fencelock.held            leases held now
//	fencelock.waiting         acquisitions that wait now
//	fencelock.unreachable     of these: without the answer of a quorum
//	fencelock.no_messages     of these: polling, because messages do not arrive
//	fencelock.lingering       leases that an RWMutex keeps without a current user
//
// The trace records these for each event, by fencelock.mode, read or write; times are in seconds:
//
//	fencelock.wait_time       histogram: from the call to the grant, or to the failure, then with error.type
//	fencelock.hold_time       histogram: from the grant to the end of the lease
//	fencelock.at_risk         counter: leases near their end without a confirmed renewal
//
// Goroutines that share a lock by an RWMutex share one lease: its acquisition and its end are recorded, and hand-offs
// within the process are not.
//
// # Spans
//
// The span fencelock.wait covers an acquisition that was not granted at once, under the span of the caller's context.
// The span fencelock.section covers the work of [Telemetry.Section]. The caller's span gets the events
// fencelock.at_risk and fencelock.lost.
//
// Names of locks are nowhere among these, unless [WithNames] asks for them.
package rwlockotel
