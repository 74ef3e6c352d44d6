//go:build race

package testkit

// RaceDetector is on: it allocates, and makes everything several times slower.
const RaceDetector = true
