// Package access decides what a caller may do: scopes, roles, the tokens and the people that have them, and the callers
// with the rights that follow. It decides, too, whether there is room for another bearer token or role binding, since
// every controller holds all of them in memory. It is pure: values in, rights or a refusal out.
package access

import "github.com/ingot-metal/ingot/internal/failure"

const (
	// MaxTokens bounds the tokens in force.
	MaxTokens = 10_000
	// MaxBindings bounds the role bindings.
	MaxBindings = 5000
)

// AdmitToken refuses a token for which there is no room, or whose maker is a token that was revoked meanwhile.
func AdmitToken(inForce int64, makerRevoked bool) error {
	switch {
	case inForce >= MaxTokens:
		return failure.Precondition("INVALID_FIELD", "there are %d tokens in force; revoke some first", inForce).
			WithField("name", "too many tokens")
	case makerRevoked:
		return failure.Unauthenticated("BEARER_INVALID", "the token was revoked")
	}
	return nil
}

// AdmitBinding refuses a role binding for which there is no room.
func AdmitBinding(stored int64) error {
	if stored >= MaxBindings {
		return failure.Precondition("INVALID_FIELD", "there are %d role bindings; delete some first", stored).
			WithField("binding", "too many role bindings")
	}
	return nil
}
