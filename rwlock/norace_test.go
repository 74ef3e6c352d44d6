//go:build !race

package rwlock_test

// raceDetector is off.
const raceDetector = false
