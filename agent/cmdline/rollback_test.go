package cmdline_test

import (
	"testing"

	"github.com/ingot-metal/ingot/agent/cmdline"
)

// The effect itself is tried with a whole system. Here it is refused unless it was asked for explicitly.
func TestRollbackNeedsToBeTold(t *testing.T) {
	for _, args := range [][]string{{"rollback"}, {"rollback", "--pending", "--now"}, {"rollback", "now"},
		{"rollback", "--keep", "--show"}} {
		if code := cmdline.Main(t.Context(), args, "test"); code == 0 {
			t.Errorf("%v: exit code 0", args)
		}
	}
}
