package admin

import (
	"slices"
	"testing"

	"github.com/ingot-metal/ingot/controller/webhook"
)

// TestEventTypesAreKnown: the completion lists exactly the types of the server.
func TestEventTypesAreKnown(t *testing.T) {
	for _, kind := range webhook.Types() {
		if !slices.Contains(eventTypes, kind) {
			t.Errorf("%s is not completed", kind)
		}
	}
	for _, pattern := range eventTypes {
		if err := webhook.CheckPattern(pattern); err != nil {
			t.Errorf("the server does not take %v", err)
		}
	}
}
