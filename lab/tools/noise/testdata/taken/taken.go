// Package taken uses the name of the package with the points.
// It calls nothing of it.
package taken

// Start begins.
func Start(schedulenoise func()) { schedulenoise() }
