package mediaproof_test

import (
	"testing"

	"github.com/ingot-metal/ingot/internal/mediaproof"
)

// TestProofsHoldForOneKeyAlone: of one image, one assignment and one key.
func TestProofsHoldForOneKeyAlone(t *testing.T) {
	t.Parallel()
	secret, key := []byte("secret"), []byte("key")
	proof := mediaproof.Make(secret, "token", key)
	for name, c := range map[string]struct {
		secret, key, proof []byte
		token              string
		want               bool
	}{
		"the same":         {secret, key, proof, "token", true},
		"another key":      {secret, []byte("other"), proof, "token", false},
		"another image":    {[]byte("other"), key, proof, "token", false},
		"another token":    {secret, key, proof, "other", false},
		"no proof":         {secret, key, nil, "token", false},
		"no secret":        {nil, key, mediaproof.Make(nil, "token", key), "token", false},
		"the token longer": {secret, []byte("ey"), mediaproof.Make(secret, "token", key), "token\x00k", false},
	} {
		if got := mediaproof.Verify(c.secret, c.token, c.key, c.proof); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
