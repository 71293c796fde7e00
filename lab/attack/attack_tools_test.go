package attack

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/label"
	"github.com/ingot-metal/ingot/lab/harness"
)

func toolAttempts() []Attempt {
	return []Attempt{
		{Party: Operator, Attempt: "offer a machine to a tool that installs it, and take an offer back", Rule: 18,
			Run: offerMachine},
		{Party: Reader, Attempt: "ask by validate_only what only work may ask", Rule: 18, Run: validateWithoutRights},
	}
}

// offerMachine: an operator writes the label by which Cluster API takes machines: in a registration, an update of the
// label, and an update of all labels. Then it removes an admin's offer.
func offerMachine(ctx context.Context, r *Rig) (Outcome, error) {
	operator, _, err := token(ctx, r.C.Client, "operator", "operate", "")
	if err != nil {
		return Outcome{}, err
	}
	offer := map[string]string{label.Offered: label.ClusterAPI}
	r.C.Register(&baremetalv1.Machine{MachineId: "m-production", Labels: map[string]string{"team": "payments"}})
	r.C.Register(&baremetalv1.Machine{MachineId: "m-offered", Labels: offer})
	update := func(id string, labels map[string]string, path string) error {
		_, err := operator.Machines().UpdateMachine(ctx, &baremetalv1.UpdateMachineRequest{
			Machine:    &baremetalv1.Machine{MachineId: id, Labels: labels},
			UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{path}}})
		return err
	}
	_, registered := operator.Machines().RegisterMachine(ctx,
		&baremetalv1.RegisterMachineRequest{Machine: &baremetalv1.Machine{MachineId: "m-new", Labels: offer}})
	tries := map[string]error{
		"a registration": registered, "one label": update("m-production", offer, "labels."+label.Offered),
		"all labels":         update("m-production", offer, "labels"),
		"an offer's removal": update("m-offered", nil, "labels."+label.Offered),
	}
	for what, err := range tries {
		if !harness.HasReason(err, "SCOPE_TOO_SMALL") {
			return breached("an operator wrote %s: %v", what, err), nil
		}
	}
	if err := update("m-offered", map[string]string{"team": "b"}, "labels.team"); err != nil {
		return Outcome{}, err // other labels are every operator's
	}
	return held("%d writes refused", len(tries)), nil
}

// validateWithoutRights: a token of scope read sends work with validate_only.
func validateWithoutRights(ctx context.Context, r *Rig) (Outcome, error) {
	reader, _, err := token(ctx, r.C.Client, "reader", "read", "")
	if err != nil {
		return Outcome{}, err
	}
	const id = "m-validated"
	r.C.Register(&baremetalv1.Machine{MachineId: id})
	m, flows := reader.Machines(), baremetalv1.NewWorkflowServiceClient(reader.Conn())
	_, reboot := m.RebootMachine(ctx, &baremetalv1.RebootMachineRequest{MachineId: id, RequestId: "v", ValidateOnly: true})
	_, reimage := m.ReimageMachine(ctx, &baremetalv1.ReimageMachineRequest{MachineId: id, RequestId: "v",
		ValidateOnly: true})
	_, flow := flows.StartWorkflow(ctx, &baremetalv1.StartWorkflowRequest{
		MachineId: id, RequestId: "v", ValidateOnly: true,
		Kind: baremetalv1.Workflow_DECOMMISSION, Mode: baremetalv1.Workflow_FULL_DECOMMISSION,
	})
	for what, err := range map[string]error{"a reboot": reboot, "a reimage": reimage, "a decommission": flow} {
		if status.Code(err) != codes.PermissionDenied {
			return breached("a reader validated %s: %v", what, err), nil
		}
	}
	if n := len(r.C.OperationsOf(id)); n != 0 {
		return breached("%d operations were started", n), nil
	}
	return held("3 calls refused"), nil
}
