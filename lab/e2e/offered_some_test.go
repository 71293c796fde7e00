//go:build !offers

package e2e

// everyOffer: a few states are brought about, which takes seconds.
const everyOffer = false
