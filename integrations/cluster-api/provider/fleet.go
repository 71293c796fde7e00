package provider

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/internal/label"
)

// ClaimLabel is the label of a machine that a cluster uses. Its value is the id of the claim.
const ClaimLabel = "capi.ingot.dev/claim"

// Fleet is a controller of Ingot.
type Fleet struct {
	machines   baremetalv1.MachineServiceClient
	operations baremetalv1.OperationServiceClient
	workflows  baremetalv1.WorkflowServiceClient
	admin      baremetalv1.AdminServiceClient
}

// NewFleet takes a connection of client.Dial.
func NewFleet(conn grpc.ClientConnInterface) *Fleet {
	return &Fleet{
		baremetalv1.NewMachineServiceClient(conn), baremetalv1.NewOperationServiceClient(conn),
		baremetalv1.NewWorkflowServiceClient(conn), baremetalv1.NewAdminServiceClient(conn),
	}
}

// candidates returns the machines of a selector, and of a site where one is set. They are offered to Cluster API, have
// no claim, and may be free.
func (f *Fleet) candidates(ctx context.Context, selector, site string) ([]*baremetalv1.Machine, error) {
	filter := "state in (NEW, IDLE, ATTENTION)," + "labels." + label.Offered + "=" + label.ClusterAPI +
		",labels." + ClaimLabel + "!=*," + selector
	if site != "" {
		filter += ",site in (" + site + ")"
	}
	var out []*baremetalv1.Machine
	for token := ""; ; {
		page, err := f.machines.ListMachines(ctx, &baremetalv1.ListMachinesRequest{Filter: filter, PageToken: token})
		if err != nil {
			return nil, fmt.Errorf("list machines: %w", err)
		}
		out = append(out, page.GetMachines()...)
		if token = page.GetNextPageToken(); token == "" {
			return out, nil
		}
	}
}

// sites are the sites of the machines of a selector.
func (f *Fleet) sites(ctx context.Context, selector string) ([]string, error) {
	counted, err := f.machines.CountMachines(ctx,
		&baremetalv1.CountMachinesRequest{Filter: selector, GroupBy: []string{"site"}})
	if err != nil {
		return nil, fmt.Errorf("count machines by site: %w", err)
	}
	var out []string
	for _, g := range counted.GetGroups() {
		out = append(out, g.GetValues()[0])
	}
	return out, nil
}

// machine reads a machine; nil where there is none.
func (f *Fleet) machine(ctx context.Context, id string) (*baremetalv1.Machine, error) {
	m, err := f.machines.GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
	if client.Reason(err) == baremetalv1.Reason_MACHINE_NOT_FOUND {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read machine %s: %w", id, err)
	}
	return m, nil
}

// label sets the machine's claim, or clears it where the value is empty, if the machine is still as it was read. It
// returns nil where it is not.
func (f *Fleet) label(ctx context.Context, m *baremetalv1.Machine, claim string) (*baremetalv1.Machine, error) {
	change := &baremetalv1.Machine{MachineId: m.GetMachineId()}
	if claim != "" {
		change.Labels = map[string]string{ClaimLabel: claim}
	}
	out, err := f.machines.UpdateMachine(ctx, &baremetalv1.UpdateMachineRequest{
		Machine: change, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels." + ClaimLabel}},
		ExpectedVersion: m.GetVersion(),
	})
	if client.Reason(err) == baremetalv1.Reason_VERSION_CONFLICT {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("label machine %s: %w", m.GetMachineId(), err)
	}
	return out, nil
}

// operation finds the operation of a step; nil where it was not asked for.
func (f *Fleet) operation(ctx context.Context, c Claim, step string) (*baremetalv1.Operation, error) {
	list, err := f.operations.ListOperations(ctx, &baremetalv1.ListOperationsRequest{
		Filter: "machine_id=" + c.MachineID + ",request_id=" + c.request(step), PageSize: 1})
	if err != nil {
		return nil, fmt.Errorf("find the operation of %s: %w", step, err)
	}
	if len(list.GetOperations()) == 0 {
		return nil, nil
	}
	return list.GetOperations()[0], nil
}

// erasure finds the decommission of a claim; nil where it was not asked for.
func (f *Fleet) erasure(ctx context.Context, c Claim) (*baremetalv1.Workflow, error) {
	for token := ""; ; {
		list, err := f.workflows.ListWorkflows(ctx,
			&baremetalv1.ListWorkflowsRequest{Filter: "machine_id=" + c.MachineID, PageToken: token})
		if err != nil {
			return nil, fmt.Errorf("find the decommission: %w", err)
		}
		for _, w := range list.GetWorkflows() {
			if w.GetRequestId() == c.request(stepErase) {
				return w, nil
			}
		}
		if token = list.GetNextPageToken(); token == "" {
			return nil, nil
		}
	}
}

// work reads what was asked for under a claim.
func (f *Fleet) work(ctx context.Context, c Claim) (w work, err error) {
	for step, into := range map[string]**baremetalv1.Operation{
		stepEnter: &w.enter, stepExit: &w.exit, stepLeave: &w.leave, stepReturn: &w.back,
	} {
		if *into, err = f.operation(ctx, c, step); err != nil {
			return w, err
		}
	}
	for {
		o, err := f.operation(ctx, c, installStep(len(w.installs)+1))
		if err != nil {
			return w, err
		}
		if o == nil {
			break
		}
		w.installs = append(w.installs, o)
	}
	if w.leave != nil || len(w.installs) > 0 {
		w.erasure, err = f.erasure(ctx, c)
	}
	return w, err
}

// order is what an IngotMachine asks for besides its claim.
type order struct {
	image, userData string
	agentless       bool
	// workflow is the one that is abandoned.
	workflow string
}

// do asks for a step. A step that was asked for already is returned as it is.
func (f *Fleet) do(ctx context.Context, c Claim, step string, o order) (*baremetalv1.Operation, error) {
	id, request := c.MachineID, c.request(step)
	const comment = "Cluster API"
	var out *baremetalv1.Operation
	var err error
	if err := f.validate(ctx, c, step, o); err != nil {
		return nil, fmt.Errorf("%s machine %s: %w", step, id, err)
	}
	switch step {
	case stepEnter, stepLeave:
		out, err = f.machines.EnterMaintenance(ctx,
			&baremetalv1.EnterMaintenanceRequest{MachineId: id, RequestId: request, Comment: comment})
	case stepExit, stepReturn:
		out, err = f.machines.ExitMaintenance(ctx,
			&baremetalv1.ExitMaintenanceRequest{MachineId: id, RequestId: request, Comment: comment})
	case stepErase:
		out, err = f.workflows.StartWorkflow(ctx, c.erasure(o))
	case stepAbandon:
		out, err = f.workflows.ActOnWorkflow(ctx, &baremetalv1.ActOnWorkflowRequest{
			WorkflowId: o.workflow, RequestId: request, Action: baremetalv1.WorkflowAction_WORKFLOW_ACTION_CANCEL,
			Comment: comment,
		})
	default:
		out, err = f.machines.ReimageMachine(ctx, c.installation(step, o))
	}
	if err != nil {
		return nil, fmt.Errorf("%s machine %s: %w", step, id, err)
	}
	return out, nil
}

// installation is the request for the installation of a step.
func (c Claim) installation(step string, o order) *baremetalv1.ReimageMachineRequest {
	return &baremetalv1.ReimageMachineRequest{
		MachineId: c.MachineID, RequestId: c.request(step), ImageRef: o.image, Agentless: o.agentless,
		Seed: &baremetalv1.SystemSeed{UserData: o.userData},
	}
}

// erasure is the request for the decommission that writes the image anew.
func (c Claim) erasure(o order) *baremetalv1.StartWorkflowRequest {
	return &baremetalv1.StartWorkflowRequest{
		MachineId: c.MachineID, RequestId: c.request(stepErase), Kind: baremetalv1.Workflow_DECOMMISSION,
		Mode: baremetalv1.Workflow_STORAGE_CLEANUP, Params: map[string]string{"image_ref": o.image},
	}
}

// validate asks whether the work would be taken that a step into maintenance is for, and starts nothing: what would be
// refused in maintenance is refused before the machine is taken out of service. Other steps are not asked about.
func (f *Fleet) validate(ctx context.Context, c Claim, step string, o order) (err error) {
	switch step {
	case stepEnter:
		r := c.installation(installStep(1), o)
		r.ValidateOnly = true
		_, err = f.machines.ReimageMachine(ctx, r)
	case stepLeave:
		r := c.erasure(o)
		r.ValidateOnly = true
		_, err = f.workflows.StartWorkflow(ctx, r)
	}
	return err
}

// cancel stops an operation that can still be stopped.
func (f *Fleet) cancel(ctx context.Context, o *baremetalv1.Operation) error {
	_, err := f.machines.CancelOperation(ctx, &baremetalv1.CancelOperationRequest{OperationId: o.GetOperationId()})
	switch client.Reason(err) {
	case baremetalv1.Reason_CANCEL_TOO_LATE, baremetalv1.Reason_OPERATION_FINISHED:
		return nil
	}
	if err != nil {
		return fmt.Errorf("cancel operation %s: %w", o.GetOperationId(), err)
	}
	return nil
}

// address is an address that the machine's system answers at, as far as the controller knows one.
func (f *Fleet) address(ctx context.Context, m *baremetalv1.Machine) (string, error) {
	if a := m.GetStatus().GetProbedAddress(); a != "" {
		return a, nil
	}
	leases, err := f.admin.ListSiteLeases(ctx, &baremetalv1.ListSiteLeasesRequest{
		Site: siteOf(m), Filter: "machine_id=" + m.GetMachineId(), PageSize: 1})
	if err != nil && client.Reason(err) != baremetalv1.Reason_SITE_NOT_FOUND {
		return "", fmt.Errorf("list leases: %w", err)
	}
	if len(leases.GetLeases()) > 0 {
		return leases.GetLeases()[0].GetAddress(), nil
	}
	// The length of the prefix is not wanted.
	static, _, _ := strings.Cut(m.GetSpec().GetInstallAddress(), "/")
	// The server takes host:port alone; a machine without an endpoint has no host.
	host, _, _ := net.SplitHostPort(m.GetSpec().GetSshEndpoint())
	return cmp.Or(static, host), nil
}

func siteOf(m *baremetalv1.Machine) string { return cmp.Or(m.GetSpec().GetSite(), "default") }
