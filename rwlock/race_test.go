//go:build race

package rwlock_test

// raceDetector is on: it allocates, and makes everything several times slower.
const raceDetector = true
