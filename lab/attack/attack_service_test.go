package attack

import (
	"context"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/lab/harness"
)

// serviceAttempts take machines out of service.
func serviceAttempts() []Attempt {
	return []Attempt{
		{Party: Operator, Attempt: "take a fleet out of service past its budget", Rule: 15, Run: emptyFleet},
		{Party: Operator, Attempt: "take machines in service out of the inventory past its budget", Rule: 15,
			Run: emptyInventory},
	}
}

// emptyFleet: one machine may be out of service. An operator reboots all of them, takes all into maintenance, alone and
// by a rollout, and cancels what waits to ask again.
func emptyFleet(ctx context.Context, r *Rig) (Outcome, error) {
	const machines = 3
	var fleet []string
	for range machines {
		id, err := inService(ctx, r)
		if err != nil {
			return Outcome{}, err
		}
		fleet = append(fleet, id)
	}
	_, err := baremetalv1.NewBudgetServiceClient(r.C.Conn()).SetBudget(ctx, &baremetalv1.SetBudgetRequest{
		Budget: &baremetalv1.Budget{Name: "one", Domain: "fleet", AtOnce: 1, Harm: baremetalv1.Budget_INTERRUPTS}})
	if err != nil {
		return Outcome{}, err
	}
	operator := r.Client("operator", access.ScopeOperate)
	if err := interruptAll(ctx, operator, fleet); err != nil {
		return Outcome{}, err
	}
	most := 0
	for until := time.Now().Add(time.Duration(r.Many(5, 30)) * time.Second); time.Now().Before(until); {
		out, err := outOfService(ctx, r.C.Client, fleet)
		if err != nil {
			return Outcome{}, err
		}
		if most = max(most, out); most > 1 {
			return breached("%d of %d machines are out of service, and one may be", most, machines), nil
		}
		hold(ctx, 50*time.Millisecond)
	}
	if most == 0 {
		return Outcome{}, fmt.Errorf("no machine left service")
	}
	return held("at most %d of %d machines was out of service", most, machines), nil
}

// inService installs a machine and brings it into service.
func inService(ctx context.Context, r *Rig) (string, error) {
	m := r.C.NewMachine(r.T, harness.MachineOptions{})
	m.WaitConnected()
	c := r.C.Machines()
	for _, start := range []func() (*baremetalv1.Operation, error){
		func() (*baremetalv1.Operation, error) {
			return c.EnterMaintenance(ctx, &baremetalv1.EnterMaintenanceRequest{MachineId: m.ID, RequestId: "in"})
		},
		func() (*baremetalv1.Operation, error) {
			return c.ReimageMachine(ctx, &baremetalv1.ReimageMachineRequest{MachineId: m.ID, RequestId: "install",
				ImageRef: "ubuntu-2204"})
		},
		func() (*baremetalv1.Operation, error) {
			return c.ExitMaintenance(ctx, &baremetalv1.ExitMaintenanceRequest{MachineId: m.ID, RequestId: "out"})
		},
	} {
		op, err := start()
		if err != nil {
			return "", err
		}
		if op = r.C.Wait(op.GetOperationId(), time.Minute); op.GetPhase() != baremetalv1.Operation_SUCCEEDED {
			return "", fmt.Errorf("%s has ended %s: %s", op.GetType(), op.GetPhase(), op.GetError().GetMessage())
		}
	}
	return m.ID, nil
}

// interruptAll asks for everything that takes machines out of service. What waits is cancelled once, and asked for
// again.
func interruptAll(ctx context.Context, operator *harness.Client, fleet []string) error {
	for round := range 2 {
		for _, id := range fleet {
			op, err := operator.Machines().RebootMachine(ctx, &baremetalv1.RebootMachineRequest{MachineId: id,
				RequestId: fmt.Sprint("reboot-", round)})
			if err != nil {
				continue // it is busy
			}
			if op.GetPhase() == baremetalv1.Operation_PENDING && round == 0 {
				_, _ = operator.Machines().CancelOperation(ctx, // it may have begun
					&baremetalv1.CancelOperationRequest{OperationId: op.GetOperationId()})
			}
		}
		for _, id := range fleet {
			_, _ = operator.Machines().EnterMaintenance(ctx, // it may be busy
				&baremetalv1.EnterMaintenanceRequest{MachineId: id, RequestId: fmt.Sprint("empty-", round)})
		}
	}
	spec := &baremetalv1.RolloutSpec{Filter: "phase=READY", Type: "ENTER_MAINTENANCE"}
	p, err := rolloutsOf(operator).PreviewRollout(ctx, &baremetalv1.PreviewRolloutRequest{Spec: spec})
	if err != nil {
		return err
	}
	if len(p.GetWaves()) == 0 {
		return nil // all machines are busy
	}
	_, err = rolloutsOf(operator).CreateRollout(ctx, &baremetalv1.CreateRolloutRequest{RequestId: "empty", Spec: spec,
		Digest: p.GetDigest()})
	return err
}

// outOfService counts the machines that reboot or are in maintenance.
func outOfService(ctx context.Context, c *harness.Client, fleet []string) (n int, err error) {
	for _, id := range fleet {
		m, err := c.Machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
		if err != nil {
			return 0, err
		}
		if m.GetStatus().GetPhase() == baremetalv1.MachineStatus_MAINTENANCE {
			n++
			continue
		}
		if id := m.GetStatus().GetActiveOperationId(); id != "" {
			if op := c.Operation(id); op.GetPhase() == baremetalv1.Operation_RUNNING {
				n++
			}
		}
	}
	return n, nil
}

// emptyInventory: one machine a day may lose its data. An operator drains two machines in service, whose records are
// deleted then, and quarantines a third to retire and delete it.
func emptyInventory(ctx context.Context, r *Rig) (Outcome, error) {
	var fleet []string
	for range 3 {
		id, err := inService(ctx, r)
		if err != nil {
			return Outcome{}, err
		}
		fleet = append(fleet, id)
	}
	_, err := baremetalv1.NewBudgetServiceClient(r.C.Conn()).SetBudget(ctx, &baremetalv1.SetBudgetRequest{
		Budget: &baremetalv1.Budget{Name: "one", Domain: "fleet", AtOnce: 1, PerDay: 1}})
	if err != nil {
		return Outcome{}, err
	}
	operator := r.Client("operator", access.ScopeOperate)
	move := func(id string, to baremetalv1.NodeState) {
		_, _ = operator.Nodes().TransitionNode(ctx, // a refused call has no effect
			&baremetalv1.TransitionNodeRequest{NodeId: id, RequestId: to.String(), State: to, Comment: "worn out", Force: true})
	}
	move(fleet[0], baremetalv1.NodeState_NODE_STATE_DRAINING)
	move(fleet[1], baremetalv1.NodeState_NODE_STATE_DRAINING)
	move(fleet[2], baremetalv1.NodeState_NODE_STATE_QUARANTINED)
	move(fleet[2], baremetalv1.NodeState_NODE_STATE_RETIRED)
	for until := time.Now().Add(time.Duration(r.Many(5, 20)) * time.Second); time.Now().Before(until); {
		hold(ctx, 200*time.Millisecond)
		lost := 0
		for _, id := range fleet {
			_, _ = operator.Machines().DeleteMachine(ctx, &baremetalv1.DeleteMachineRequest{MachineId: id}) // or it is refused
			_, err := r.C.Machines().GetMachine(ctx, &baremetalv1.GetMachineRequest{MachineId: id})
			switch {
			case harness.HasReason(err, "MACHINE_NOT_FOUND"), harness.HasReason(err, "MACHINE_DELETED"):
				lost++
			case err != nil:
				return Outcome{}, err
			}
		}
		if lost > 1 {
			return breached("%d machines in service are out of the inventory, and one may be", lost), nil
		}
	}
	return held("one of three machines left the inventory at most"), nil
}
