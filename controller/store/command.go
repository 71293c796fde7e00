package store

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/workflow"
)

// commandSpec is what the executor is told to do.
func commandSpec(ctx context.Context, q *dbsqlc.Queries, l *loaded, d operation.Decision, c *operation.Command, step *baremetalv1.Step, generation int64) (*fleetv1.CommandSpec, error) {
	s := d.Op.Steps[c.StepIdx]
	spec := &fleetv1.CommandSpec{
		CommandId: c.ID, OperationId: d.Op.ID, TargetId: d.Op.MachineID, Step: s.Name, Attempt: int32(c.Attempt),
		NeedsGrant: true, TimeoutMs: int32(executorTimeout(s.Timeout).Milliseconds()),
		// No grant is given after the deadline, and one that was given in time may be used: the executor's own limit lies
		// behind both.
		ExpiresAt: timestamppb.New(c.Deadline.Add(s.Timeout)), Provider: l.machine.Provider, BmcEndpoint: l.spec.GetBmcEndpoint(),
		BmcCredentialsRef: l.spec.GetBmcCredentialsRef(), MacAddresses: l.spec.GetMacAddresses(),
	}
	var err error
	switch c.Kind {
	case operation.KindReboot:
		spec.Action = &fleetv1.CommandSpec_Reboot{Reboot: &fleetv1.RebootAction{Mode: orText(step.GetReboot().GetMode(), "graceful")}}
	case operation.KindNetboot:
		spec.Action = &fleetv1.CommandSpec_Netboot{Netboot: &fleetv1.NetbootAction{Mode: step.GetNetboot().GetMode()}}
	case operation.KindRepave:
		action := &fleetv1.CommandSpec_Repave{}
		action.Repave, err = l.repaveAction(ctx, q, step.GetRepave())
		spec.Action = action
	case operation.KindPreflight:
		action := &fleetv1.CommandSpec_Preflight{}
		action.Preflight, err = l.repaveAction(ctx, q, step.GetRepave())
		spec.Action, spec.NeedsGrant = action, false
	case operation.KindErase:
		spec.Action = &fleetv1.CommandSpec_Erase{Erase: &fleetv1.EraseAction{
			Method: orText(step.GetErase().GetMethod(), "auto"), DiskRule: step.GetErase().GetDisk(), ProtectedDisks: l.spec.GetProtectedDisks(),
		}}
	case operation.KindReset:
		spec.Action = &fleetv1.CommandSpec_ResetDevices{ResetDevices: &fleetv1.ResetDevicesAction{}}
	case operation.KindSSH:
		spec.Action, err = l.scriptAction(ctx, q, step.GetSsh())
	case operation.KindPower:
		spec.Action = &fleetv1.CommandSpec_Power{Power: l.powerAction(d)}
	case operation.KindPowerOff:
		byHand := step.GetWorkflowStage().GetStage() == workflow.SwitchOff // the system is asked first
		spec.Action = &fleetv1.CommandSpec_Power{Power: &fleetv1.PowerAction{Want: "off", Force: !byHand}}
	case operation.KindPowerOn:
		spec.Action = &fleetv1.CommandSpec_Power{Power: &fleetv1.PowerAction{Want: "on"}}
	case operation.KindKexec:
		spec.Action, err = l.installerAction(ctx, q)
	case operation.KindJoinToken, operation.KindVerify, operation.KindDrain, operation.KindUncordon:
		spec.Action, err = l.clusterAction(ctx, q, c.Kind, step)
	case operation.KindJoin:
		spec.Action, err = l.joinAction(ctx, q, step)
	case operation.KindProvider:
		spec.Action = l.providerAction(providerStep(step))
	case operation.KindReconfig:
		spec.Action = &fleetv1.CommandSpec_Reconfig{Reconfig: reconfigAction(step.GetNet(), s.Timeout, generation)}
	}
	return spec, err
}

func reconfigAction(n *baremetalv1.NetReconfig, timeout time.Duration, generation int64) *fleetv1.ReconfigAction {
	confirm := time.Duration(n.GetConfirmTimeoutSeconds()) * time.Second
	if confirm == 0 {
		confirm = min(60*time.Second, timeout/2)
	}
	// Marshalling a message that was just parsed cannot fail; an empty one configures nothing.
	config, _ := proto.MarshalOptions{Deterministic: true}.Marshal(n)
	return &fleetv1.ReconfigAction{Config: config, ConfirmTimeoutMs: int32(confirm.Milliseconds()), Generation: generation}
}

// executorTimeout leaves the executor's own verdict time to arrive before the controller's deadline.
func executorTimeout(step time.Duration) time.Duration {
	return step - min(step/10, 5*time.Second)
}

// switchActions are what a provider does to switch a machine.
var switchActions = map[string]string{workflow.SwitchOn: "power_on", workflow.SwitchOff: "power_off"}

// providerStep is what a step asks of the machine's provider.
func providerStep(s *baremetalv1.Step) *baremetalv1.ProviderAction {
	if a := switchActions[s.GetWorkflowStage().GetStage()]; a != "" {
		return &baremetalv1.ProviderAction{Action: a}
	}
	return s.GetProviderAction()
}
