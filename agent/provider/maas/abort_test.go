package maas

import (
	"strings"
	"testing"

	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// TestACancelSaysWhatMAASGoesOnWith: of every status of MAAS, by the rule of Node.abort_operation.
func TestACancelSaysWhatMAASGoesOnWith(t *testing.T) {
	t.Parallel()
	for status := ms.New; status <= ms.FailedTesting; status++ {
		row, ok := ms.Of(status)
		if !ok {
			t.Fatalf("status %d is not in the table", status)
		}
		s := Seen{M: &Machine{Status: status, StatusName: row.Name}}
		abort, why := Aborts(s, true)
		aborts := status == ms.Commissioning || status == ms.Deploying || status == ms.Testing
		if abort != aborts {
			t.Errorf("%s: abort %v, %q", row.Name, abort, why)
		}
		if !abort && strings.Contains(why, "nothing is under way") == row.Moves {
			t.Errorf("%s: %q", row.Name, why)
		}
		if _, why := Aborts(s, false); row.Moves && !strings.Contains(why, "goes on") {
			t.Errorf("%s, without a grant: %q", row.Name, why)
		}
	}
}
