package access

import (
	"testing"

	"github.com/ingot-metal/ingot/internal/failure"
)

func TestRefusalsOfTokensAndBindings(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		got    error
		reason string
		kind   failure.Kind
	}{
		"one more token":               {AdmitToken(MaxTokens-1, false), "", 0},
		"no room for a token":          {AdmitToken(MaxTokens, false), "INVALID_FIELD", failure.KindPrecondition},
		"a revoked maker":              {AdmitToken(MaxTokens-1, true), "BEARER_INVALID", failure.KindUnauthenticated},
		"no room, and a revoked maker": {AdmitToken(MaxTokens, true), "INVALID_FIELD", failure.KindPrecondition},
		"one more binding":             {AdmitBinding(MaxBindings - 1), "", 0},
		"no room for a binding":        {AdmitBinding(MaxBindings), "INVALID_FIELD", failure.KindPrecondition},
	} {
		if failure.ReasonOf(c.got) != c.reason || c.reason != "" && failure.KindOf(c.got) != c.kind {
			t.Errorf("%s: %v", name, c.got)
		}
	}
}
