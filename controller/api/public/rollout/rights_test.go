package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
)

// TestARolloutLooksAgainAtItsCreatorsRights: it begins on no machine that has left the selection of its creator's role,
// and on none once the role was removed.
func TestARolloutLooksAgainAtItsCreatorsRights(t *testing.T) {
	r := publictest.NewRig(t)
	const machines = 4
	for i := range machines {
		m := publictest.NewMachine(i)
		m.Labels = map[string]string{"team": "web"}
		r.Register(m)
	}
	role, err := r.Access.CreateRoleBinding(t.Context(), &pb.CreateRoleBindingRequest{
		Binding: &pb.RoleBinding{Role: "operator", Subject: "web", Selection: "labels.team=web"}})
	if err != nil {
		t.Fatal(err)
	}
	web := as(publictest.Within(t.Context(), "labels.team=web"), "web")
	spec := entering(func(s *pb.RolloutSpec) { s.MaxInFlight = 1 })
	p, err := r.Rollouts.PreviewRollout(web, &pb.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		t.Fatal(err)
	}
	ro, err := r.Rollouts.CreateRollout(web,
		&pb.CreateRolloutRequest{RequestId: "r", Spec: spec, Digest: p.GetDigest()})
	if err != nil {
		t.Fatal(err)
	}
	state := func() string {
		t.Helper()
		list, err := r.Rollouts.ListRolloutMachines(t.Context(), &pb.ListRolloutMachinesRequest{RolloutId: ro.GetRolloutId()})
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, m := range list.GetMachines() {
			all = append(all, strings.TrimSpace(fmt.Sprint(m.GetState(), " ", m.GetReason())))
			if m.GetReason() != "" && !strings.Contains(m.GetMessage(), "roles of web") {
				t.Errorf("%s: %q names no creator", m.GetMachineId(), m.GetMessage())
			}
		}
		return strings.Join(all, ", ")
	}
	minutes := 0
	until := func(want string) {
		t.Helper()
		for range 20 {
			minutes++
			if err := turn(r, ro.GetRolloutId(), minutes); err != nil {
				t.Fatal(err)
			}
			if state() == want {
				return
			}
		}
		t.Fatalf("%s\nwant %s", state(), want)
	}
	if _, err := r.Machines.UpdateMachine(t.Context(), &pb.UpdateMachineRequest{Machine: &pb.Machine{MachineId: "m-001",
		Labels: map[string]string{"team": "db"}}}); err != nil {
		t.Fatal(err)
	}
	until("SUCCEEDED, SKIPPED OUTSIDE_SELECTION, RUNNING, PENDING")
	if _, err := r.Access.DeleteRoleBinding(t.Context(),
		&pb.DeleteRoleBindingRequest{BindingId: role.GetBindingId()}); err != nil {
		t.Fatal(err)
	}
	until("SUCCEEDED, SKIPPED OUTSIDE_SELECTION, SUCCEEDED, SKIPPED OUTSIDE_SELECTION")
}
