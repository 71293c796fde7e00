package command

import (
	"strings"
	"testing"
)

// Every reason that a hint is keyed by must be filled with names that commands understand.
func TestHintsAreFilledIn(t *testing.T) {
	a := &App{Subject: Subject{Machine: "m-1", Operation: "op-1"}}
	for reason, text := range hints {
		if got := a.fill(text, map[string]string{"command_id": "cmd-1"}); strings.ContainsAny(got, "{}") {
			t.Errorf("%s: %q", reason, got)
		}
	}
}
