package attack

import (
	"encoding/json"
	"strconv"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
)

// refusedRows returns the calls that the audit log has as refused to an actor, and fails where a minute has two rows.
func refusedRows(t *testing.T, c *harness.Client, actor string) (calls int) {
	t.Helper()
	rows, err := c.Admin().ListAuditLog(t.Context(), &baremetalv1.ListAuditLogRequest{Actor: actor, PageSize: 1000})
	if err != nil {
		t.Fatal(err)
	}
	minutes := map[time.Time]bool{}
	for _, e := range rows.GetEntries() {
		if e.GetVerb() != "REFUSED" {
			continue
		}
		if at := e.GetTs().AsTime(); minutes[at] {
			t.Errorf("the minute %v is chained twice", at)
		} else {
			minutes[at] = true
		}
		var data map[string]string
		if err := json.Unmarshal(e.GetEventData(), &data); err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(data["count"])
		if err != nil {
			t.Fatal(err)
		}
		calls += n
	}
	return calls
}

// Refusals that a controller has answered are in the audit log once their minute is over, even after a kill right after
// the last answer. Another one chains them, each minute once.
func TestRefusalsOutliveAKill(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	small := r.Client("small", access.ScopeRead)
	other := r.C.Beside(t)
	other.Start("")
	refused := func(c *harness.Client) bool {
		_, err := c.Machines().
			RebootMachine(t.Context(), &baremetalv1.RebootMachineRequest{MachineId: r.Machine, RequestId: "r"})
		return harness.HasReason(err, access.ReasonScopeTooSmall)
	}
	beside := other.WithToken(small.Token())
	made := 0
	testkit.Eventually(t, time.Minute, func() bool {
		if refused(beside) {
			made++
		}
		return made > 0
	}, "the other controller does not take the new token")
	for range 20 {
		for _, c := range []*harness.Client{small, beside} {
			if !refused(c) {
				t.Fatal("a reader may reboot")
			}
			made++
		}
	}
	if !refused(small) {
		t.Fatal("a reader may reboot")
	}
	made++
	r.C.Process.Kill()
	other.Intact()
	testkit.Eventually(t, 5*time.Minute, func() bool { return refusedRows(t, other.Client, "small") >= made },
		"%d refusals are not in the audit log", made)
	if got := refusedRows(t, other.Client, "small"); got != made {
		t.Errorf("%d refusals are in the audit log, and there were %d", got, made)
	}
	other.Intact()
}
