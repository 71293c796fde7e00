//go:build !race

package hosttest

// raced reports whether the calling test's program has the race detector.
const raced = false
