package public_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/failure"
)

// A role for some machines opens those and no others, in lists as by name, whatever filter the caller sends.
func TestListsKeepToTheSelections(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 40 {
		m := publictest.NewMachine(i)
		m.Spec.Site, m.Spec.Rack = []string{"a", "b"}[i%2], fmt.Sprint("r", i%4)
		m.Labels = map[string]string{"team": []string{"web", "db", "ai"}[i%3]}
		r.Register(m)
	}
	inside := func(keep func(i int) bool) (out []string) {
		for i := range 40 {
			if keep(i) {
				out = append(out, publictest.NewMachine(i).GetMachineId())
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		selections []string
		filter     string
		want       []string
	}{
		"a site":             {[]string{"site=a"}, "", inside(func(i int) bool { return i%2 == 0 })},
		"a site, narrowed":   {[]string{"site=a"}, "rack=r2", inside(func(i int) bool { return i%4 == 2 })},
		"another site asked": {[]string{"site=a"}, "site=b", nil},
		"both labels":        {[]string{"labels.team=web"}, "labels.team=db", nil},
		"two that overlap": {[]string{"site=a", "labels.team=web"}, "",
			inside(func(i int) bool { return i%2 == 0 || i%3 == 0 })},
		"three that overlap": {[]string{"site=a", "labels.team=web", "machine_id in (m-001, m-003, m-005)"}, "",
			inside(func(i int) bool { return i%2 == 0 || i%3 == 0 || i == 1 || i == 3 || i == 5 })},
		"everything but":  {[]string{"site!=a"}, "", inside(func(i int) bool { return i%2 == 1 })},
		"a prefix":        {[]string{"rack=r*"}, "machine_id=m-007", []string{"m-007"}},
		"nothing matches": {[]string{"site=c"}, "", nil},
		"an id outside":   {[]string{"site=a"}, "machine_id=m-001", nil},
	} {
		ctx := publictest.Within(t.Context(), c.selections...)
		for _, size := range []int32{0, 3} {
			var machines, nodes []string
			publictest.Walk(t, func(token string) (string, error) {
				got, err := r.Machines.ListMachines(
					ctx,
					&pb.ListMachinesRequest{Filter: c.filter, PageSize: size, PageToken: token},
				)
				for _, m := range got.GetMachines() {
					machines = append(machines, m.GetMachineId())
				}
				return got.GetNextPageToken(), err
			})
			publictest.Walk(t, func(token string) (string, error) {
				got, err := r.Nodes.ListNodes(ctx, &pb.ListNodesRequest{Filter: c.filter, PageSize: size, PageToken: token})
				for _, n := range got.GetNodes() {
					nodes = append(nodes, n.GetNodeId())
				}
				return got.GetNextPageToken(), err
			})
			slices.Sort(machines)
			slices.Sort(nodes)
			if !slices.Equal(machines, c.want) || !slices.Equal(nodes, c.want) {
				t.Errorf("%s, pages of %d: %v and %v, want %v", name, size, machines, nodes, c.want)
			}
		}
	}
	ctx := publictest.Within(t.Context(), "site=a")
	if m, err := r.Machines.GetMachine(
		ctx,
		&pb.GetMachineRequest{MachineId: "m-002"},
	); err != nil ||
		m.GetMachineId() != "m-002" {
		t.Errorf("inside: %v, %v", m, err)
	}
	for _, id := range []string{"m-001", "no-such"} {
		_, err := r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: id})
		publictest.Wants(t, err, failure.KindDenied, "OUTSIDE_SELECTION", "")
	}
	_, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{UpdatedSince: timestamppb.New(time.Unix(1, 0))})
	publictest.Wants(t, err, failure.KindPrecondition, "CURSOR_EXPIRED", "cursor") // departures of then are not kept
	_, err = r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{OrderBy: "rack"})
	publictest.Wants(t, err, failure.KindDenied, "SELECTION_TOO_NARROW", "")
	_, err = r.Machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: "m-001", RequestId: "1"})
	publictest.Wants(t, err, failure.KindDenied, "OUTSIDE_SELECTION", "")
	op, err := r.Machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: "m-002", RequestId: "1"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Machines.CancelOperation(publictest.Within(t.Context(), "site=b"),
		&pb.CancelOperationRequest{OperationId: op.GetOperationId()})
	publictest.Wants(t, err, failure.KindDenied, "OUTSIDE_SELECTION", "")
	if _, err := r.Operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: op.GetOperationId()}); err != nil {
		t.Error(err)
	}
}

func TestRoleBindings(t *testing.T) {
	r := publictest.NewRig(t)
	ends := timestamppb.New(time.Now().Add(time.Hour))
	bind := func(b *pb.RoleBinding) (*pb.RoleBinding, error) {
		return r.Access.CreateRoleBinding(t.Context(), &pb.CreateRoleBindingRequest{Binding: b})
	}
	one, err := bind(&pb.RoleBinding{Role: "operator", Group: "night", Selection: "site = a, label.team=web"})
	if err != nil || one.GetSelection() != "site=a,labels.team=web" || one.GetCreatedBy() != "tester" {
		t.Fatalf("%v, %v", one, err)
	}
	again, err := bind(
		&pb.RoleBinding{Role: "operator", Group: "night", Selection: "site=a,labels.team=web", ExpiresAt: ends},
	)
	if err != nil || again.GetBindingId() != one.GetBindingId() || again.GetExpiresAt() == nil {
		t.Errorf("again: %v, %v", again, err)
	}
	for field, bad := range map[string]*pb.RoleBinding{
		"binding.role":       {Role: "root", Group: "g"},
		"binding.group":      {Role: "admin"},
		"binding.selection":  {Role: "admin", Group: "g", Selection: "phase=READY"},
		"binding.expires_at": {Role: "admin", Group: "g", ExpiresAt: timestamppb.New(time.Unix(1, 0))},
		"binding.binding_id": {Role: "admin", Group: "g", BindingId: "rb-mine"},
	} {
		_, err := bind(bad)
		publictest.Wants(t, err, invalid, "INVALID_FIELD", field)
	}
	_, err = bind(&pb.RoleBinding{Role: "admin", Group: "g", Selection: "nonsense"})
	publictest.Wants(t, err, invalid, "INVALID_FILTER", "")
	if _, err := bind(&pb.RoleBinding{Role: "admin", Subject: "ada"}); err != nil {
		t.Error(err)
	}
	list, err := r.Access.ListRoleBindings(t.Context(), &pb.ListRoleBindingsRequest{})
	if err != nil || len(list.GetBindings()) != 2 || list.GetBindings()[0].GetSubject() != "ada" ||
		list.GetTotalSize() != 2 {
		t.Errorf("%v, %v", list, err)
	}
	list, err = r.Access.ListRoleBindings(t.Context(), &pb.ListRoleBindingsRequest{PageSize: 1})
	if err != nil || len(list.GetBindings()) != 1 || list.GetTotalSize() != 2 {
		t.Errorf("a page of one: %v, %v", list, err)
	}
	if _, err := r.Access.DeleteRoleBinding(t.Context(),
		&pb.DeleteRoleBindingRequest{BindingId: one.GetBindingId()}); err != nil {
		t.Error(err)
	}
	_, err = r.Access.DeleteRoleBinding(t.Context(), &pb.DeleteRoleBindingRequest{BindingId: one.GetBindingId()})
	publictest.Wants(t, err, notFound, "ROLE_BINDING_NOT_FOUND", "binding_id")
	_, err = r.Access.RevokeSession(t.Context(), &pb.RevokeSessionRequest{SessionId: "ss-none"})
	publictest.Wants(t, err, notFound, "SESSION_NOT_FOUND", "session_id")
	_, err = r.Access.GetSignOn(t.Context(), &pb.GetSignOnRequest{})
	publictest.Wants(t, err, failure.KindPrecondition, "SIGN_ON_OFF", "")
	audit, err := r.Admin.ListAuditLog(t.Context(), &pb.ListAuditLogRequest{TargetId: one.GetBindingId()})
	if err != nil || len(audit.GetEntries()) != 3 || audit.GetEntries()[0].GetVerb() != "DELETE_ROLE_BINDING" {
		t.Errorf("%v, %v", audit, err)
	}
}
