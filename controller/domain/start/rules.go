package start

import (
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
	"github.com/ingot-metal/ingot/internal/failure"
)

func planOfType(f *Facts) error {
	if fleet.Housekeeping(f.Request.Type) == plan.Housekeeping(f.Plan) {
		return nil
	}
	return failure.Invalid("INVALID_FIELD", "plan %s does not fit operation type %s", f.Plan.GetPlanId(), f.Request.Type).
		WithField("plan_id",
			"plans that change the phase belong to ENTER_MAINTENANCE and EXIT_MAINTENANCE, and no others do")
}

func planOfClients(f *Facts) error {
	if !plan.OfWorkflow(f.Plan) || f.Request.Internal {
		return nil
	}
	return failure.Invalid("INVALID_FIELD", "plan %s is run by workflows alone", f.Plan.GetPlanId()).
		WithField("plan_id", "start a workflow: ingot onboard, ingot decommission")
}

// machineAsks are the scripts by which the plan may lose data, and the operation of an unresolved command.
func machineAsks(f *Facts) (ask []Fact) {
	if f.RemovesRecord {
		return nil
	}
	if !plan.Destructive(f.Plan) {
		ask = planScripts(f.Plan)
	}
	if id := f.Machine.UnresolvedCommand; id != "" {
		ask = append(ask, Fact{CommandFact, id})
		if f.Command != nil && operation.Repeatable(f.Command) {
			ask = append(ask, Fact{CommandOperationFact, f.CommandOperation.ID})
		}
	}
	return ask
}

func planScripts(p *baremetalv1.Plan) (ask []Fact) {
	for _, s := range p.GetSteps() {
		if s.GetSsh() != nil {
			ask = append(ask, Fact{ScriptFact, s.GetSsh().GetCommand()})
		}
	}
	return ask
}

// machineTakesWork refuses work on a machine by its state. A node that a workflow has retired is not blocked for the
// removal of its record.
func machineTakesWork(f *Facts) error {
	m := f.Machine
	if f.RemovesRecord {
		if m.OperationID == "" {
			return nil
		}
		return failure.Precondition("MACHINE_BUSY", "operation %s is active; wait for it", m.OperationID)
	}
	state := m.Facts
	if f.drains() {
		state.NodeState = fleet.Draining
	}
	state.Repeatable = f.repeatable()
	refusal := fleet.AdmitPlan(state, f.Request.Type, fleet.PlanTraits{Destructive: f.planDestroys(),
		LeavesSystem: plan.LeavesSystem(f.Plan), ReturnsFromRMA: plan.ReturnsFromRMA(f.Plan), Removes: f.Request.Removes})
	if refusal == nil {
		return nil
	}
	e := refused(refusal, m).WithMeta("phase", string(m.Phase))
	if m.OperationID != "" {
		e = e.WithMeta("active_operation_id", m.OperationID)
	}
	if m.UnresolvedCommand != "" {
		e = e.WithMeta("unresolved_command_id", m.UnresolvedCommand)
	}
	return e
}

// refused returns a refusal that names the machine.
func refused(r *fleet.Refusal, m Machine) *failure.Error {
	return r.Failure().WithMeta("machine_id", m.MachineID)
}

// repeatable returns the type of a start that asks for the same as the operation of the machine's unresolved command,
// where that may be asked for again; empty for any other start.
func (f *Facts) repeatable() fleet.OperationType {
	if f.Command == nil || !operation.Repeatable(f.Command) || f.CommandOperation.PlanID != f.Plan.GetPlanId() {
		return ""
	}
	return f.CommandOperation.Type
}

func (f *Facts) openWorkflowAsked() bool { return f.Stage == nil && f.planDestroys() }

func openWorkflowAsks(f *Facts) []Fact {
	if !f.openWorkflowAsked() {
		return nil
	}
	return []Fact{{OpenWorkflowFact, f.Machine.MachineID}}
}

// noOpenWorkflow refuses work that would undo what a workflow has proved.
func noOpenWorkflow(f *Facts) error {
	w := f.OpenWorkflow
	if w == nil {
		return nil
	}
	return failure.Precondition("WORKFLOW_ACTIVE", "workflow %s of the machine is %s; act on it, or cancel it first", w.ID,
		strings.ToLower(w.State)).WithMeta("workflow_id", w.ID).WithMeta("machine_id", f.Machine.MachineID)
}

func driftAsks(f *Facts) []Fact {
	if !f.openWorkflowAsked() {
		return nil
	}
	return f.providerAsks()
}

func (f *Facts) providerAsks() []Fact {
	if f.Machine.Provider != workflow.ProviderMAAS {
		return nil
	}
	return []Fact{{ObservationFact, f.Machine.MachineID}, {ThresholdFact, f.Machine.Site}}
}

// noDrift refuses work that destroys data where the machine's provider and the node's state disagree, as far as the
// site's threshold asks for it. The node's state may have changed since the provider was asked: it is compared anew. An
// observation of before the machine's last work is none: that work changed the provider's answer.
func noDrift(f *Facts) error {
	o, m := f.Observation, f.Machine
	if o == nil || m.Provider != workflow.ProviderMAAS || o.Mark() == m.AcceptedDrift {
		return nil
	}
	text, major := workflow.Drift(m.NodeState, *o)
	if !workflow.DriftBlocks(f.Threshold, text, major) {
		return nil
	}
	return failure.Precondition("PROVIDER_DRIFT",
		"%s; resolve it in MAAS, or accept it with `ingot node update %s --adopt-provider-state`, then ask again", text,
		m.MachineID).
		WithMeta("machine_id", m.MachineID).WithMeta("provider_state", string(o.State)).WithMeta("system_id", o.SystemID)
}

func kindsAreBuilt(f *Facts) error {
	s := plan.NotWired(f.Plan)
	if s == nil || plan.OfWorkflow(f.Plan) {
		return nil
	}
	return failure.Unimplemented("STEP_KIND_NOT_WIRED", "step %s of plan %s is of kind %s, which this version cannot run",
		s.GetName(), f.Plan.GetPlanId(), kind.OfStep(s))
}

// callerMayRotate refuses to change the password of a BMC for a caller that is no admin. Work of the controller's own,
// such as that of a rollout that an admin has begun, has no caller.
func callerMayRotate(f *Facts) error {
	if !plan.RotatesPassword(f.Plan) || f.Caller.Identity() == "" || f.Caller.Scope.Covers(access.ScopeAdmin) {
		return nil
	}
	return failure.Denied(access.ReasonScopeTooSmall, "only an admin changes the passwords of BMCs").
		WithMeta("scope", f.Caller.Scope.String()).WithMeta("required_scope", access.ScopeAdmin.String())
}

func rotationAsks(f *Facts) []Fact {
	if f.Stage != nil || !plan.RotatesPassword(f.Plan) || !f.Machine.ours() || f.Machine.Spec.GetBmcEndpoint() == "" ||
		f.Machine.Spec.GetBmcCredentialsRef() == "" {
		return nil
	}
	return []Fact{{NeighboursFact, f.Machine.Spec.GetBmcEndpoint()}}
}

func passwordIsOwn(f *Facts) error {
	if !plan.RotatesPassword(f.Plan) {
		return nil
	}
	return PasswordIsOwn(f.Machine, f.Neighbours)
}

// PasswordIsOwn refuses a change of a password that is not the machine's own: it has no BMC, its provider keeps the
// password, or another machine with the same credentials names the same BMC, whose account has one password.
func PasswordIsOwn(m Machine, neighbours []Neighbour) error {
	if !m.ours() {
		return failure.Precondition("CAPABILITY_MISSING", "provider %q keeps the passwords of its BMCs itself; "+
			"change it there", m.Provider).WithMeta("machine_id", m.MachineID)
	}
	mine, err := bmcaddr.Parse(m.Spec.GetBmcEndpoint())
	if err != nil || m.Spec.GetBmcCredentialsRef() == "" {
		return failure.Precondition("NO_BMC", "machine %s has no BMC, or no credentials for it; "+
			"ingot machine update %s --bmc-endpoint ADDRESS --bmc-credentials NAME", m.MachineID, m.MachineID)
	}
	for _, other := range neighbours {
		at, err := bmcaddr.Parse(other.BMCEndpoint)
		if err == nil && at.Host == mine.Host && at.Port == mine.Port {
			return failure.Precondition("BMC_SHARED", "machine %s has the same BMC, whose account has one password; it was "+
				"not changed", other.MachineID).WithMeta("machine_id", other.MachineID)
		}
	}
	return nil
}

func policyAsks(f *Facts) []Fact {
	if !f.destroys() || f.Request.Judged || f.Caller.Identity() == "" {
		return nil
	}
	return []Fact{{PolicyFact, f.Machine.MachineID}}
}

func notDemanded(f *Facts) error {
	if f.Policy == nil {
		return nil
	}
	return ApprovalRequired(*f.Policy)
}

// ApprovalRequired returns the refusal of work for which a policy demands approval.
func ApprovalRequired(p Policy) error {
	return failure.Precondition("APPROVAL_REQUIRED",
		"approval policy %s lets one person destroy data on %d machines in 24 hours; create a rollout of this work "+
			"(ingot rollout create), which another approver begins", p.Name, p.Machines).WithMeta("approval_policy", p.Name)
}

func overSSH(s plan.Filled) bool { return kind.Of(s.Kind).Route == kind.OverSSH }

// scriptAsks are the scripts of the plan, and the SSH credentials of a machine that names all that a login needs.
func scriptAsks(f *Facts) (ask []Fact) {
	spec := f.Machine.Spec
	for _, s := range f.steps() {
		if overSSH(s) {
			ask = append(ask, Fact{ScriptFact, s.Step.GetSsh().GetCommand()})
		}
	}
	if len(ask) > 0 && spec.GetSshEndpoint() != "" && spec.GetSshCredentialsRef() != "" && len(spec.GetSshHostKeys()) > 0 {
		ask = append(ask, Fact{SSHCredentialsFact, spec.GetSshCredentialsRef()})
	}
	return ask
}

// scriptsCanRun refuses work that would need a script that does not exist, or a machine that no agent could log in to.
func scriptsCanRun(f *Facts) error {
	for _, s := range f.steps() {
		if !overSSH(s) {
			continue
		}
		if _, ok := f.Scripts[s.Step.GetSsh().GetCommand()]; !ok {
			return ScriptNotFound(s.Step.GetSsh().GetCommand())
		}
		if err := sshReady(f); err != nil {
			return err
		}
	}
	return nil
}

// ScriptNotFound returns the refusal of a script that the catalogue does not have.
func ScriptNotFound(ref string) error {
	return failure.NotFound("SCRIPT_NOT_FOUND", "there is no script %q in the catalogue; see `ingot script list`",
		ref).WithField("script_ref", "unknown")
}

// SSHCredentialsNotFound returns the refusal of SSH credentials that are not stored.
func SSHCredentialsNotFound(ref string) error {
	return failure.NotFound("CREDENTIALS_NOT_FOUND", "there are no SSH credentials %q; see `ingot ssh credentials set`",
		ref).WithField("credentials_ref", "unknown")
}

// ClusterNotFound returns the refusal of a cluster that is not stored.
func ClusterNotFound(ref string) error {
	return failure.NotFound("CLUSTER_NOT_FOUND", "there is no cluster %q; see `ingot cluster set`",
		ref).WithField("cluster_ref", "unknown")
}

func sshReady(f *Facts) error {
	id, spec := f.Machine.MachineID, f.Machine.Spec
	switch {
	case spec.GetSshEndpoint() == "":
		return failure.Precondition("SSH_NOT_CONFIGURED",
			"machine %s names no SSH endpoint; give it with `ingot machine update %s --ssh-endpoint HOST:22`", id, id).
			WithField("machine.spec.ssh_endpoint", "required to run a script")
	case spec.GetSshCredentialsRef() == "":
		return failure.Precondition("SSH_NOT_CONFIGURED",
			"machine %s names no SSH credentials; give them with `ingot machine update %s --ssh-credentials NAME`", id, id).
			WithField("machine.spec.ssh_credentials_ref", "required to run a script")
	case len(spec.GetSshHostKeys()) == 0:
		return failure.Precondition("SSH_HOST_KEY_UNKNOWN",
			"no SSH host key of machine %s is known, and none is trusted on first use; read it at the machine "+
				"(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub) and give it with `ingot machine update %s --ssh-host-key "+
				"SHA256:…`", id, id).
			WithField("machine.spec.ssh_host_keys", "required to run a script")
	case !f.SSHCredentials[spec.GetSshCredentialsRef()]:
		return SSHCredentialsNotFound(spec.GetSshCredentialsRef())
	}
	return nil
}

func clusterAsks(f *Facts) (ask []Fact) {
	for _, s := range f.steps() {
		if ref := kind.ClusterOf(s.Step); ref != "" {
			ask = append(ask, Fact{ClusterFact, ref})
		}
	}
	return ask
}

// clustersExist refuses work that would need a cluster that is not stored.
func clustersExist(f *Facts) error {
	for _, s := range f.steps() {
		if ref := kind.ClusterOf(s.Step); ref != "" && !f.Clusters[ref] {
			return ClusterNotFound(ref)
		}
	}
	return nil
}

// stepsWouldBegin refuses work of which a step would fail at once, by the decision of every step before the first.
func stepsWouldBegin(f *Facts) error {
	answer := f.foresight()
	if answer.Refusal == nil {
		return nil
	}
	return refused(answer.Refusal, f.Machine).WithMeta("step", answer.Step)
}

func bmcAsks(f *Facts) []Fact {
	ref := f.Machine.Spec.GetBmcCredentialsRef()
	if ref == "" || len(f.steps()) == 0 || !f.foresight().ThroughBMC {
		return nil
	}
	return []Fact{{BMCCredentialsFact, ref}}
}

// bmcCredentialed refuses work through a BMC whose credentials are named and not stored: the agent would get none.
func bmcCredentialed(f *Facts) error {
	ref := f.Machine.Spec.GetBmcCredentialsRef()
	if len(bmcAsks(f)) == 0 || f.BMCCredentials[ref] {
		return nil
	}
	return failure.Precondition("CREDENTIALS_NOT_FOUND",
		"the BMC credentials %q that machine %s names are not stored; add them with `ingot bmc credentials set %s`", ref,
		f.Machine.MachineID, ref).WithMeta("machine_id", f.Machine.MachineID)
}
