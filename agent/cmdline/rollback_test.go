package cmdline_test

import (
	"testing"

	"github.com/ingot-metal/ingot/agent/cmdline"
)

// What it does is tried with a whole system; here, that nobody rolls back by mistake.
func TestRollbackNeedsToBeTold(t *testing.T) {
	for _, args := range [][]string{{"rollback"}, {"rollback", "--pending", "--now"}, {"rollback", "now"},
		{"rollback", "--keep", "--show"}} {
		if code := cmdline.Main(t.Context(), args, "test"); code == 0 {
			t.Errorf("%v: exit code 0", args)
		}
	}
}
