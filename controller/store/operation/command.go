package operation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/pki"
)

// nodeName is what the machine's Node is called. A machine id that is no DNS name joins nothing: the API server refuses
// it.
func (l *OperationContext) nodeName() string { return l.Machine.MachineID }

// speaksToCluster says that the operation has a step for which somebody speaks to a cluster.
func (l *OperationContext) speaksToCluster() bool {
	return slices.ContainsFunc(l.Snap.Op.Steps, func(s operation.Step) bool {
		return credentialstore.ClusterActs[s.Kind] != "" || s.Kind == operation.KindJoin || s.Kind == operation.KindStage &&
			s.Mode == workflow.DrainNode
	})
}

// clusterAction is what a site agent is told to do in a cluster.
func (l *OperationContext) clusterAction(
	ctx context.Context, q *dbsqlc.Queries, kind operation.Kind, step *baremetalv1.Step,
) (*fleetv1.CommandSpec_Cluster, error) {
	uuid, err := q.SystemUUIDOf(ctx, l.Machine.MachineID)
	if err != nil {
		return nil, fmt.Errorf("read system UUID: %w", err)
	}
	a := &fleetv1.ClusterAction{
		Act: credentialstore.ClusterActs[kind], ClusterRef: credentialstore.ClusterOf(step), NodeName: l.nodeName(),
		SystemUuid: uuid, BootId: l.Machine.BootID,
		KubeletVersion: step.GetVerify().GetKubeletVersion(), Force: step.GetDrain().GetForce(),
		DeleteLocalData: step.GetDrain().GetDeleteLocalData(), RemoveNode: step.GetDrain().GetRemoveNode(),
	}
	if l.workflow != nil {
		// Whoever decommissions a machine has asked for what it holds to go. A reset keeps the system, and its place in the
		// cluster with it.
		a.ClusterRef, a.DeleteLocalData = l.spec.GetTargetClusterRef(), true
		a.RemoveNode = l.workflow.Mode != workflow.SoftReset
	}
	return &fleetv1.CommandSpec_Cluster{Cluster: a}, nil
}

// joinAction is what the machine's own agent is told.
func (l *OperationContext) joinAction(
	ctx context.Context, q *dbsqlc.Queries, step *baremetalv1.Step,
) (*fleetv1.CommandSpec_Join, error) {
	a := &fleetv1.JoinAction{ClusterRef: credentialstore.ClusterOf(step), NodeName: l.nodeName()}
	if l.command != nil {
		a.TokenCommandId = l.command.CommandID // it was decided on because that one is done
	}
	row, err := q.GetCluster(ctx, a.GetClusterRef())
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read cluster: %w", err)
	}
	if a.CaHashes, err = pki.KeyHashes(row.CaPem); err != nil {
		a.CaHashes = nil // an action without them is taken by no agent
	}
	return &fleetv1.CommandSpec_Join{Join: a}, nil
}

// commandSpec is what the executor is told to do.
func commandSpec(
	ctx context.Context, q *dbsqlc.Queries, l *OperationContext, d operation.Decision, c *operation.Command,
	step *baremetalv1.Step, generation int64,
) (*fleetv1.CommandSpec, error) {
	s := d.Op.Steps[c.StepIdx]
	spec := &fleetv1.CommandSpec{
		CommandId: c.ID, OperationId: d.Op.ID, TargetId: d.Op.MachineID, Step: s.Name, Attempt: int32(c.Attempt),
		NeedsGrant: true, TimeoutMs: int32(executorTimeout(s.Timeout).Milliseconds()),
		// No grant is given after the deadline, and one that was given in time may be used: the executor's own limit lies
		// behind both.
		ExpiresAt: timestamppb.New(c.Deadline.Add(s.Timeout)), Provider: l.Machine.Provider,
		BmcEndpoint:       l.spec.GetBmcEndpoint(),
		BmcCredentialsRef: l.spec.GetBmcCredentialsRef(), MacAddresses: l.spec.GetMacAddresses(),
	}
	var err error
	switch c.Kind {
	case operation.KindReboot:
		spec.Action = &fleetv1.CommandSpec_Reboot{Reboot: &fleetv1.RebootAction{Mode: pgtx.OrText(step.GetReboot().GetMode(),
			"graceful")}}
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
			Method: pgtx.OrText(step.GetErase().GetMethod(), "auto"), DiskRule: step.GetErase().GetDisk(),
			ProtectedDisks: l.spec.GetProtectedDisks(),
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

// providerAction is what the site's agent is told to do through the machine's provider.
func (l *OperationContext) providerAction(a *baremetalv1.ProviderAction) *fleetv1.CommandSpec_ProviderAction {
	return &fleetv1.CommandSpec_ProviderAction{ProviderAction: &fleetv1.ProviderAction{
		Action: a.GetAction(), Params: a.GetParams(), RegionRef: pgtx.OrText(l.spec.GetProviderRef(),
			nodestate.DefaultRegion), Serial: l.spec.GetSerial(),
	}}
}

// scriptAction is what the site agent is told: which bytes, with which arguments, on whom. A script that is gone all
// the same leaves an action that no agent takes.
func (l *OperationContext) scriptAction(
	ctx context.Context, q *dbsqlc.Queries, s *baremetalv1.SshCommand,
) (*fleetv1.CommandSpec_Script, error) {
	a := &fleetv1.ScriptAction{
		ScriptRef: s.GetCommand(), Args: s.GetArgs(), Endpoint: l.spec.GetSshEndpoint(), HostKeys: l.spec.GetSshHostKeys(),
		CredentialsRef: l.spec.GetSshCredentialsRef(),
	}
	row, err := q.GetScript(ctx, s.GetCommand())
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read script: %w", err)
	}
	a.Sha256, a.SizeBytes, a.Interpreter = row.Sha256, row.SizeBytes, row.Interpreter
	return &fleetv1.CommandSpec_Script{Script: a}, nil
}
