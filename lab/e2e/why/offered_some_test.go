//go:build !offers

package why

// everyOffer: a few states are brought about, which takes seconds.
const everyOffer = false
