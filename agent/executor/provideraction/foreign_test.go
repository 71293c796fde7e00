package provideraction_test

import (
	"context"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider/maas"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// takes lets another client take the machine once the command has looked at it, and before its first request leaves.
func (r *rig) takes(action string, take func()) executor.Result {
	r.t.Helper()
	s := spec(action, nil)
	r.prepare(s)
	ctx, cancel := context.WithTimeoutCause(r.t.Context(), patience, executor.ErrTimeout)
	defer cancel()
	job := r.job(s, ctx)
	write := job.UpdateIntent
	job.UpdateIntent = func(ctx context.Context, intent any) error {
		if take != nil {
			take()
			take = nil
		}
		return write(ctx, intent)
	}
	out, err := r.exec.Execute(ctx, job)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// TestNothingIsTakenFromSomebodyElse: a machine that another client has, or has taken since the last look, is not
// changed. Release, erase, deploy, delete, mark, power-off and abort are all left out, though MAAS would do them.
func TestNothingIsTakenFromSomebodyElse(t *testing.T) {
	t.Parallel()
	ours := map[string]string{"ingot-machine": "m-1", "ingot-operation": "op-0"}
	mine := map[string]string{"ingot-machine": "m-1", "ingot-operation": "op-1"}
	for _, c := range []struct {
		action, op string
		start      maastest.Machine
		// taken is the status to which the other client has brought it.
		taken ms.Status
	}{
		{"release", "POST release", maastest.Machine{Status: ms.Deployed, Annotations: ours}, ms.Deployed},
		{"release", "POST release", maastest.Machine{Status: ms.Broken, Annotations: ours}, ms.Broken},
		{"erase", "POST release", maastest.Machine{Status: ms.Deployed, Annotations: ours}, ms.Deployed},
		{"erase", "POST release", maastest.Machine{Status: ms.FailedDeployment, Annotations: ours}, ms.Allocated},
		{"deploy", "POST deploy", maastest.Machine{Status: ms.Allocated, Annotations: mine}, ms.Allocated},
		{"deploy", "POST release", maastest.Machine{Status: ms.FailedDeployment, Annotations: ours}, ms.FailedDeployment},
		{"delete", "DELETE machine", maastest.Machine{Status: ms.Ready}, ms.Deployed},
		{"delete", "DELETE machine", maastest.Machine{Status: ms.Broken, Annotations: ours}, ms.Broken},
		{"mark_broken", "POST mark_broken", maastest.Machine{Status: ms.Deployed, Annotations: ours}, ms.Deployed},
		{"power_off", "POST power_off", maastest.Machine{Status: ms.Deployed, Annotations: ours}, ms.Deployed},
		{"abort", "POST abort", maastest.Machine{Status: ms.Deploying, Stuck: true, Annotations: ours}, ms.Deploying},
		{"rescue_mode", "POST rescue_mode", maastest.Machine{Status: ms.Deployed, Annotations: ours}, ms.Deployed},
	} {
		for name, whose := range map[string]func(m *maastest.Machine){
			"another user's":                 func(m *maastest.Machine) { m.Owner, m.Annotations = "eve", nil },
			"another user's, and copied":     func(m *maastest.Machine) { m.Owner = "eve" },
			"another program's with our key": func(m *maastest.Machine) { m.Owner, m.Annotations = maastest.User, nil },
			"another machine's": func(m *maastest.Machine) {
				m.Owner, m.Annotations = maastest.User, map[string]string{"ingot-machine": "m-2", "ingot-operation": "op-9"}
			},
		} {
			for _, when := range []string{"before", "in between"} {
				t.Run(c.action+"/"+c.op+"/"+name+"/"+when, func(t *testing.T) {
					t.Parallel()
					r := newRig(t)
					id := r.add(c.start)
					take := func() {
						r.region.Change(id, func(m *maastest.Machine) { m.Status = c.taken; whose(m) })
					}
					if when == "before" {
						take()
						take = nil
					}
					out := r.takes(c.action, take)
					if out.Outcome != fleetv1.CommandResult_FAILED || out.Reason != baremetalv1.Reason_MAAS_STATUS_CONFLICT {
						t.Errorf("%v %v %q", out.Outcome, out.Reason, out.Message)
					}
					if n := len(r.region.Requests(c.op)); n != 0 {
						t.Errorf("%s was asked %d times", c.op, n)
					}
				})
			}
		}
	}
}

// TestAnotherMachineWithTheCards: nothing is asked of a machine in MAAS that has the MAC addresses and another serial
// number: a network card may have moved.
func TestAnotherMachineWithTheCards(t *testing.T) {
	t.Parallel()
	for _, action := range maas.Actions() {
		if a, _ := maas.ActionOf(action); a.Region {
			continue
		}
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			for _, status := range []ms.Status{ms.New, ms.Ready, ms.Deployed, ms.FailedDeployment, ms.Deploying} {
				r := newRig(t)
				r.add(maastest.Machine{Status: status, Serial: "SN-OTHER", Stuck: true})
				s := spec(action, nil)
				s.GetProviderAction().Serial = "SN-1"
				r.prepare(s)
				out, err := r.execute(s, patience)
				if err != nil || out.Outcome != fleetv1.CommandResult_FAILED ||
					out.Reason != baremetalv1.Reason_HARDWARE_MISMATCH || !strings.Contains(out.Message, "SN-OTHER") {
					t.Errorf("while %d: %v %v %q, %v", status, out.Outcome, out.Reason, out.Message, err)
				}
				for _, q := range r.region.Requests("") {
					if q.Acted {
						t.Errorf("while %d: %s acted", status, q.Op)
					}
				}
			}
		})
	}
}

// TestTakenAfterTheRelease: a machine that another client takes as soon as MAAS has released it counts as released, and
// stays theirs.
func TestTakenAfterTheRelease(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	id := r.add(maastest.Machine{Status: ms.Deployed})
	r.region.Released(func(m *maastest.Machine) { m.Owner, m.Status = "eve", ms.Allocated })
	if out := r.takes("release", nil); out.Outcome != fleetv1.CommandResult_SUCCEEDED {
		t.Errorf("%v %v %q", out.Outcome, out.Reason, out.Message)
	}
	if m, _ := r.region.Get(id); m.Owner != "eve" {
		t.Errorf("the machine is %q's", m.Owner)
	}
	if out := r.takes("release", nil); out.Outcome != fleetv1.CommandResult_FAILED ||
		!strings.Contains(out.Message, "eve") {
		t.Errorf("%v %v %q", out.Outcome, out.Reason, out.Message)
	}
}
