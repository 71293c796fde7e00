//go:build offers

package e2e

// everyOffer: every state is brought about.
const everyOffer = true
