package agent

import (
	"errors"
	"fmt"
	"testing"

	"github.com/ingot-metal/ingot/agent/state"
)

// A session may meet the fenced state of a simulated machine that went down before its context ends.
func TestAFencedStateIsTheEndOfTheMachine(t *testing.T) {
	t.Parallel()
	s, err := state.Open(t.Context(), state.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.Fence()
	err = fmt.Errorf("handle acknowledgement: %w", s.Trim(t.Context(), 1))
	if got := cause(t.Context(), err); !errors.Is(got, errHostDown) {
		t.Errorf("the agent ends with %v, and would not start again with its machine", got)
	}
}
