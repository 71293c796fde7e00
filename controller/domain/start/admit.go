package start

import (
	"slices"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
)

// Rule is a row of the table of refusals.
type Rule struct {
	Name string
	// Reasons of its refusals, in the order of their precedence. The reasons of a step's decision are not listed: they
	// are all by which a step of any kind fails at once.
	Reasons []string
	// asks returns the facts that the rule depends on; nil if the record of the machine and the plan are enough.
	asks func(*Facts) []Fact
	// refuse returns the refusal; nil if the rule has none.
	refuse func(*Facts) error
}

// rules is the table of all refusals of a start, in the order of their precedence. A rule that judges steps judges them
// in their order. The machine and the plan exist. An attempt of a workflow has been judged by workflowRules before, and
// is not asked the rules that are marked outsideWorkflows.
var rules = []Rule{
	{Name: "plan fits the type", Reasons: []string{"INVALID_FIELD"}, refuse: outsideWorkflows(planOfType)},
	{Name: "plan is no workflow's", Reasons: []string{"INVALID_FIELD"}, refuse: outsideWorkflows(planOfClients)},
	{Name: "machine takes work", Reasons: []string{"MACHINE_DELETED", "MACHINE_BLOCKED", "MACHINE_BUSY", "WRONG_PHASE",
		"FLEET_FROZEN", "MACHINE_QUARANTINED", "COMMAND_UNRESOLVED"}, asks: machineAsks, refuse: machineTakesWork},
	{Name: "no workflow is open", Reasons: []string{"WORKFLOW_ACTIVE"}, asks: openWorkflowAsks,
		refuse: outsideWorkflows(destroying(noOpenWorkflow))},
	{Name: "provider agrees", Reasons: []string{"PROVIDER_DRIFT"}, asks: driftAsks,
		refuse: outsideWorkflows(destroying(noDrift))},
	{Name: "kinds are built", Reasons: []string{"STEP_KIND_NOT_WIRED"}, refuse: outsideWorkflows(kindsAreBuilt)},
	{Name: "caller may rotate", Reasons: []string{"SCOPE_TOO_SMALL"}, refuse: outsideWorkflows(callerMayRotate)},
	{Name: "password can be rotated", Reasons: []string{"CAPABILITY_MISSING", "NO_BMC", "BMC_SHARED"}, asks: rotationAsks,
		refuse: outsideWorkflows(passwordIsOwn)},
	{Name: "steps are complete", Reasons: []string{"MACHINE_HAS_NO_IMAGE", "CLUSTER_NOT_CONFIGURED"},
		refuse: func(f *Facts) error { return f.filled().fault }},
	{Name: "no approval is missing", Reasons: []string{"APPROVAL_REQUIRED"}, asks: policyAsks, refuse: notDemanded},
	{Name: "installer is ours", Reasons: []string{"INVALID_FIELD"}, refuse: installerIsOurs},
	{Name: "images exist", Reasons: []string{"IMAGE_NOT_FOUND"}, asks: imageAsks, refuse: imagesExist},
	{Name: "machine proves its identity", Reasons: []string{"IDENTITY_LEVEL_TOO_LOW"}, asks: identityAsks,
		refuse: identifiable},
	{Name: "installation can succeed", Reasons: []string{"INSTALLER_MISSING", "NO_BOOT_PATH", "MEDIA_UNSUPPORTED",
		"NO_INSTALL_ADDRESS", "IMAGE_UNSUPPORTED", "DISK_RULE_NO_UNIQUE_MATCH", "IMAGE_TOO_LARGE"}, asks: installAsks,
		refuse: installable},
	{Name: "seed reaches a system", Reasons: []string{"CAPABILITY_MISSING"}, refuse: takesSeed},
	{Name: "works without an agent", Reasons: []string{"NO_BMC", "MACHINE_AGENTLESS", "CAPABILITY_MISSING"},
		refuse: takesAgentless},
	{Name: "scripts can run", Reasons: []string{"SCRIPT_NOT_FOUND", "SSH_NOT_CONFIGURED", "SSH_HOST_KEY_UNKNOWN",
		"CREDENTIALS_NOT_FOUND"}, asks: scriptAsks, refuse: scriptsCanRun},
	{Name: "clusters exist", Reasons: []string{"CLUSTER_NOT_FOUND"}, asks: clusterAsks, refuse: clustersExist},
	{Name: "every step would begin", refuse: stepsWouldBegin},
	{Name: "BMC can be reached", Reasons: []string{"CREDENTIALS_NOT_FOUND"}, asks: bmcAsks, refuse: bmcCredentialed},
}

// Rules returns the table of all refusals of a start, in the order of their precedence.
func Rules() []Rule { return slices.Clone(rules) }

// Record is work that may begin on a machine.
type Record struct {
	Plan  *baremetalv1.Plan
	Steps []plan.Filled
	// NotAsked lists what could not be known before the work, one sentence each.
	NotAsked []string
	// Destroys and Interrupts are the harm that budgets count.
	Destroys, Interrupts bool
	// Judge reports whether the approval policies are to be asked again, and the work counted, as it is stored.
	Judge bool
	// ApprovesNode reports whether asking for the installation moves the node to pending: the node was not approved yet,
	// or its attempts are spent and this is the operator's new plan.
	ApprovesNode bool
}

// Admit returns the record of the work, or the refusal of the first rule that has one. Where a rule depends on facts
// that are not known yet, it returns these, with those of the rules after it: the caller reads them and asks again.
func Admit(f *Facts) (r Record, ask []Fact, err error) {
	if ask, err = f.judge(rules); err != nil || len(ask) > 0 {
		return r, ask, err
	}
	return f.record(), nil, nil
}

func (f *Facts) judge(table []Rule) (ask []Fact, err error) {
	for i, rule := range table {
		if len(f.unknown(rule)) > 0 {
			for _, later := range table[i:] {
				for _, fact := range f.unknown(later) {
					if !slices.Contains(ask, fact) {
						ask = append(ask, fact)
					}
				}
			}
			return ask, nil
		}
		if err := rule.refuse(f); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// unknown returns the facts that a rule depends on and that were not learned.
func (f *Facts) unknown(rule Rule) (out []Fact) {
	if rule.asks == nil {
		return nil
	}
	for _, fact := range rule.asks(f) {
		if !f.learned[fact] {
			out = append(out, fact)
		}
	}
	return out
}

func (f *Facts) record() Record {
	r := Record{Plan: f.Plan, Steps: f.steps(), NotAsked: append(f.anyNames(), f.foresight().NotAsked...),
		Destroys: f.destroys(), Interrupts: f.Request.Harm == kind.Interrupts}
	if plan.HarmOf(f.Plan) != kind.Harmless && f.Machine.Phase == fleet.Ready {
		state := f.Machine.Facts
		state.Freeze = fleet.Freeze{}
		r.Interrupts = fleet.InService(state)
	}
	r.Judge = r.Destroys && !f.Request.Judged
	state := f.Machine.NodeState
	r.ApprovesNode = (state == fleet.Discovered || state == fleet.InstallFailed) &&
		operation.Installs(f.Request.Type, plan.Kinds(r.Steps)...)
	return r
}

// Move returns the record of an operation of a plan that touches no machine, and that the caller has judged: the move
// of a node, or the wait for an installer that reports by itself.
func Move(r Request, p *baremetalv1.Plan, steps []plan.Filled) Record {
	destroys := r.Harm == kind.Destroys
	return Record{Plan: p, Steps: steps, Destroys: destroys, Interrupts: r.Harm == kind.Interrupts,
		Judge: destroys && !r.Judged}
}

// planDestroys reports whether the plan loses data, by its steps and by the scripts that it runs.
func (f *Facts) planDestroys() bool {
	return plan.Destructive(f.Plan) || slices.ContainsFunc(f.Plan.GetSteps(), func(s *baremetalv1.Step) bool {
		return s.GetSsh() != nil && f.Scripts[s.GetSsh().GetCommand()]
	})
}

// destroys reports whether the work loses data.
func (f *Facts) destroys() bool { return f.planDestroys() || f.Request.Harm == kind.Destroys }

// outsideWorkflows is the rule for operations that are no attempt of a workflow.
func outsideWorkflows(rule func(*Facts) error) func(*Facts) error {
	return func(f *Facts) error {
		if f.Stage != nil {
			return nil
		}
		return rule(f)
	}
}

// destroying is the rule for plans that destroy data.
func destroying(rule func(*Facts) error) func(*Facts) error {
	return func(f *Facts) error {
		if !f.planDestroys() {
			return nil
		}
		return rule(f)
	}
}
