//go:build !race

package testkit

// RaceDetector is off.
const RaceDetector = false
