//go:build !exact

package explore

import "testing"

// mostRepeated bounds how often a schedule runs again because it left its choices. The runtime leaves some to chance: a
// select statement draws one of the cases that are ready, timers of one moment fire in any order.
const mostRepeated = 100

// warmUps is how many runs come before the first schedule.
const warmUps = 0

func prepare(*testing.T) {}
