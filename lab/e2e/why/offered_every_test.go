//go:build offers

package why

// everyOffer: every state is brought about.
const everyOffer = true
