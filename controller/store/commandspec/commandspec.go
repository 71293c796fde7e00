// Package commandspec makes the specification of a command: one action for each kind.
package commandspec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/ignition"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Order is a new command, with what its action is made of.
type Order struct {
	Machine dbsqlc.Machine
	Spec    *baremetalv1.MachineSpec
	// Operation is as the decision leaves it, and Step is the command's, as the plan has it.
	Operation operation.Operation
	Command   *operation.Command
	Step      *baremetalv1.Step
	// Before is the id of the command that the decision was about; "": none.
	Before string
	// Catalog has what the installation adds to commands.
	Catalog *catalogstore.Store
	// Generation numbers a configuration of the network.
	Generation int64
	// Workflow whose attempt the operation is; nil for any other operation.
	Workflow *workflow.Workflow
}

// nodeName is what the machine's Node is called. A machine id that is no DNS name joins nothing: the API server refuses
// it.
func (o *Order) nodeName() string { return o.Machine.MachineID }

// clusterAction is the action of a site agent in a cluster.
func (o *Order) clusterAction(
	ctx context.Context, q *dbsqlc.Queries, k kind.Kind, step *baremetalv1.Step,
) (*fleetv1.CommandSpec_Cluster, error) {
	uuid, err := q.SystemUUIDOf(ctx, o.Machine.MachineID)
	if err != nil {
		return nil, fmt.Errorf("read system UUID: %w", err)
	}
	a := &fleetv1.ClusterAction{
		Act: kind.Of(k).ClusterAct, ClusterRef: kind.ClusterOf(step), NodeName: o.nodeName(),
		SystemUuid: uuid, BootId: o.Machine.BootID,
		KubeletVersion: step.GetVerify().GetKubeletVersion(), Force: step.GetDrain().GetForce(),
		DeleteLocalData: step.GetDrain().GetDeleteLocalData(), RemoveNode: step.GetDrain().GetRemoveNode(),
	}
	if o.Workflow != nil {
		// A decommission is an order to remove the machine's data. A reset keeps the system, and its place in the cluster
		// with it.
		a.ClusterRef, a.DeleteLocalData = o.Spec.GetTargetClusterRef(), true
		a.RemoveNode = o.Workflow.Mode != workflow.SoftReset
	}
	return &fleetv1.CommandSpec_Cluster{Cluster: a}, nil
}

// joinAction is the action by which the machine joins a cluster.
func (o *Order) joinAction(
	ctx context.Context, q *dbsqlc.Queries, step *baremetalv1.Step,
) (*fleetv1.CommandSpec_Join, error) {
	a := &fleetv1.JoinAction{
		ClusterRef: kind.ClusterOf(step), NodeName: o.nodeName(),
		TokenCommandId: o.Before, // it was decided on because that one is done
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

// Message returns the specification of the command.
func (o *Order) Message(ctx context.Context, q *dbsqlc.Queries) (*fleetv1.CommandSpec, error) {
	c, step := o.Command, o.Step
	s := o.Operation.Steps[c.StepIdx]
	spec := &fleetv1.CommandSpec{
		CommandId:   c.ID,
		OperationId: o.Operation.ID,
		TargetId:    o.Operation.MachineID,
		Step:        s.Name,
		Attempt:     int32(c.Attempt),
		NeedsGrant:  true,
		TimeoutMs:   int32(executorTimeout(s.Timeout).Milliseconds()),
		// No grant is given after the deadline, and one that was given in time may be used: the executor's own limit lies
		// behind both.
		ExpiresAt:         timestamppb.New(c.Deadline.Add(s.Timeout)),
		Provider:          o.Machine.Provider,
		BmcEndpoint:       o.Spec.GetBmcEndpoint(),
		BmcCredentialsRef: o.Spec.GetBmcCredentialsRef(),
		MacAddresses:      o.Spec.GetMacAddresses(),
		Traceparent:       o.Catalog.Traceparent(o.Operation.ID, c.ID),
	}
	var err error
	switch c.Kind {
	case kind.Reboot:
		spec.Action = o.rebootAction(step)
	case kind.Netboot:
		spec.Action = &fleetv1.CommandSpec_Netboot{Netboot: &fleetv1.NetbootAction{Mode: step.GetNetboot().GetMode()}}
	case kind.Repave:
		action := &fleetv1.CommandSpec_Repave{}
		action.Repave, err = o.repaveAction(ctx, q, step.GetRepave())
		spec.Action = action
	case kind.Preflight:
		action := &fleetv1.CommandSpec_Preflight{}
		action.Preflight, err = o.repaveAction(ctx, q, step.GetRepave())
		spec.Action, spec.NeedsGrant = action, false
	case kind.Erase:
		spec.Action = &fleetv1.CommandSpec_Erase{Erase: &fleetv1.EraseAction{
			Method: pgtx.OrText(step.GetErase().GetMethod(), "auto"), DiskRule: step.GetErase().GetDisk(),
			ProtectedDisks: o.Spec.GetProtectedDisks(),
		}}
	case kind.TestHardware:
		spec.Action = testAction(step.GetTestHardware())
	case kind.SSH:
		spec.Action, err = o.scriptAction(ctx, q, step.GetSsh())
	case kind.Power:
		spec.Action = &fleetv1.CommandSpec_Power{Power: o.powerAction()}
	case kind.PowerOff:
		byHand := step.GetWorkflowStage().GetStage() == workflow.SwitchOff // the system is asked first
		spec.Action = &fleetv1.CommandSpec_Power{Power: &fleetv1.PowerAction{Want: "off", Force: !byHand}}
	case kind.PowerOn:
		spec.Action = &fleetv1.CommandSpec_Power{Power: &fleetv1.PowerAction{Want: "on"}}
	case kind.Kexec:
		spec.Action, err = o.installerAction(ctx, q)
	case kind.JoinToken, kind.Verify, kind.Drain, kind.Uncordon:
		spec.Action, err = o.clusterAction(ctx, q, c.Kind, step)
	case kind.Join:
		spec.Action, err = o.joinAction(ctx, q, step)
	case kind.ProviderAction:
		spec.Action = o.providerAction(providerStep(step))
	case kind.Net:
		spec.Action = &fleetv1.CommandSpec_Reconfig{Reconfig: reconfigAction(step.GetNet(), s.Timeout, o.Generation)}
	default:
		err = setEmptyAction(spec, c.Kind)
	}
	return spec, err
}

// setEmptyAction sets the action that a kind declares, which must be one without fields.
func setEmptyAction(spec *fleetv1.CommandSpec, k kind.Kind) error {
	m := spec.ProtoReflect()
	field := m.Descriptor().Oneofs().ByName("action").Fields().ByName(protoreflect.Name(kind.Of(k).Action))
	if field == nil {
		return nil // not a command
	}
	if n := field.Message().Fields().Len(); n > 0 {
		return fmt.Errorf("action %s has %d fields, and nothing fills them for kind %s", field.Name(), n, k)
	}
	m.Mutable(field)
	return nil
}

func testAction(t *baremetalv1.TestHardware) *fleetv1.CommandSpec_TestHardware {
	return &fleetv1.CommandSpec_TestHardware{TestHardware: &fleetv1.TestHardwareAction{
		Tests: t.GetTests(), DurationMs: int32(kind.TestDuration(t).Milliseconds()),
		MemoryPercent: kind.TestMemory(t), DiskBytes: kind.TestBytes(t),
	}}
}

// rebootAction names where a machine without an agent is probed, unless its installer restarts it.
func (o *Order) rebootAction(step *baremetalv1.Step) *fleetv1.CommandSpec_Reboot {
	a := &fleetv1.RebootAction{Mode: pgtx.OrText(step.GetReboot().GetMode(), "graceful")}
	if o.Machine.Agentless && o.Command.ExecutorRole == "site" {
		a.Probe = &fleetv1.ProbeTarget{
			MachineId: o.Machine.MachineID, MacAddresses: o.Spec.GetMacAddresses(), Address: o.Machine.ProbeIp,
		}
	}
	return &fleetv1.CommandSpec_Reboot{Reboot: a}
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

// providerAction is an action of the site agent through the provider of the machine.
func (o *Order) providerAction(a *baremetalv1.ProviderAction) *fleetv1.CommandSpec_ProviderAction {
	return &fleetv1.CommandSpec_ProviderAction{ProviderAction: &fleetv1.ProviderAction{
		Action: a.GetAction(), Params: a.GetParams(), RegionRef: pgtx.OrText(o.Spec.GetProviderRef(),
			nodestate.DefaultRegion), Serial: o.Spec.GetSerial(),
	}}
}

// scriptAction is the run of a script by the site agent: its bytes, arguments and machine. A script that is gone all
// the same leaves an action that no agent takes.
func (o *Order) scriptAction(
	ctx context.Context, q *dbsqlc.Queries, s *baremetalv1.SshCommand,
) (*fleetv1.CommandSpec_Script, error) {
	a := &fleetv1.ScriptAction{
		ScriptRef: s.GetCommand(), Args: s.GetArgs(), Endpoint: o.Spec.GetSshEndpoint(), HostKeys: o.Spec.GetSshHostKeys(),
		CredentialsRef: o.Spec.GetSshCredentialsRef(), SecretArgs: s.GetSecretArgs(),
	}
	row, err := q.GetScript(ctx, s.GetCommand())
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read script: %w", err)
	}
	a.Sha256, a.SizeBytes, a.Interpreter = row.Sha256, row.SizeBytes, row.Interpreter
	return &fleetv1.CommandSpec_Script{Script: a}, nil
}

// repaveAction returns the order to write, from the image catalogue. A simulated disk takes an image that is only a
// name.
func (o *Order) repaveAction(
	ctx context.Context, q *dbsqlc.Queries, r *baremetalv1.RepaveImage,
) (*fleetv1.RepaveAction, error) {
	a := &fleetv1.RepaveAction{ImageRef: r.GetImage(), DiskRule: pgtx.OrText(r.GetDisk(), o.Spec.GetInstallDisk()),
		ProtectedDisks: o.Spec.GetProtectedDisks(), Agentless: r.GetAgentless(),
		DataDisks:  o.Spec.GetDataDisks(),
		MirrorRule: pgtx.OrText(r.GetMirror(), o.Spec.GetInstallMirror())}
	i, err := q.ImageByRef(ctx, r.GetImage())
	switch {
	case errors.Is(err, pgx.ErrNoRows):
	case err != nil:
		return nil, fmt.Errorf("read image: %w", err)
	default:
		a.Sha256Raw, a.BlobSha256, a.Format, a.RawSize = i.Sha256Raw, i.Sha256File, i.Format, i.SizeBytes
		a.FileSize, a.MinimumDisk, a.Arch, a.Firmware = i.FileSizeBytes, i.MinimumDiskBytes, i.Arch, i.Firmware
	}
	return a, o.describeSeed(ctx, q, a)
}

// describeSeed adds which images can take the operation's seed. A seed that cannot be opened here is not described: the
// installer checks it when it has it.
func (o *Order) describeSeed(ctx context.Context, q *dbsqlc.Queries, a *fleetv1.RepaveAction) error {
	row, err := q.SystemSeedOf(ctx, o.Operation.ID)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && o.Catalog.OpenSeed == nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the system's seed: %w", err)
	}
	var seed baremetalv1.SystemSeed
	plain, err := o.Catalog.OpenSeed(row.SeedID, row.Sealed)
	if err != nil || proto.Unmarshal(plain, &seed) != nil {
		return nil //nolint:nilerr // its key may be on other controllers alone
	}
	a.SeedIgnition, a.SeedUnfit = ignition.Fit(seed.GetUserData(), seed.GetNetworkConfig())
	return nil
}

// powerAction is a power cycle into the network or the attached image, or out of the installer into the disk.
func (o *Order) powerAction() *fleetv1.PowerAction {
	a := &fleetv1.PowerAction{Want: "cycle", BootOnce: "PXE", Force: true}
	if s := o.Operation.Steps[o.Operation.CurrentStep]; s.Kind == kind.Reboot || operation.TurnedBack(s) {
		a.BootOnce = "DISK"
	} else if s.Mode == operation.PathMedia {
		a.BootOnce = "MEDIA"
	}
	return a
}

// installerAction names the kernel of the installer and its parameters: the address of its site and its boot token.
func (o *Order) installerAction(
	ctx context.Context, q *dbsqlc.Queries,
) (*fleetv1.CommandSpec_Installer, error) {
	b, err := q.BootOf(ctx, o.Machine.MachineID)
	if err != nil {
		return nil, fmt.Errorf("read boot assignment: %w", err)
	}
	address, err := o.bootAddress(ctx, q)
	if err != nil {
		return nil, err
	}
	images, err := catalogstore.InstallerFiles(ctx, q, o.Catalog.InstallerCmdline)
	if err != nil {
		return nil, err
	}
	f := images[0]
	return &fleetv1.CommandSpec_Installer{Installer: &fleetv1.InstallerAction{
		KernelSha256: f.GetKernelSha256(), InitrdSha256: f.GetInitrdSha256(),
		Cmdline: strings.TrimSpace("ingot.role=installer ingot.site=http://" + address + " ingot.token=" + b.Token + " " +
			f.GetCmdline()),
	}}, nil
}

// bootAddress is the boot server of the segment on which the machine was seen last, or of the site's first.
func (o *Order) bootAddress(ctx context.Context, q *dbsqlc.Queries) (string, error) {
	site, err := q.SiteRow(ctx, o.Machine.Site)
	if err != nil {
		return "", fmt.Errorf("read site: %w", err)
	}
	bySegment := map[string]string{}
	if err := json.Unmarshal(site.BootAddresses, &bySegment); err != nil {
		return "", fmt.Errorf("parse stored boot addresses: %w", err)
	}
	segment, err := q.SegmentOfMACs(ctx, dbsqlc.SegmentOfMACsParams{Site: site.Site, MachineID: o.Machine.MachineID})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("find the machine's segment: %w", err)
	}
	return operation.BootServer(bySegment, segment)
}
