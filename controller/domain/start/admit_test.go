package start

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/identity"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func repaveStep() *baremetalv1.Step {
	return &baremetalv1.Step{Name: "repave-os",
		Kind: &baremetalv1.Step_Repave{Repave: &baremetalv1.RepaveImage{Image: "tiny", Path: "media"}}}
}

// world is a machine on which a plan with all that can be refused may begin: a script, a drain, an installation and a
// change of the password of the BMC.
func world() *Facts {
	return &Facts{
		Now:     noon,
		Request: Request{MachineID: "m-1", RequestID: "r", Type: fleet.RunPlan, PlanID: "all", Actor: "ann"},
		Caller:  access.Caller{Name: "ann", Scope: access.ScopeAdmin},
		Machine: Machine{
			Facts: fleet.Facts{MachineID: "m-1", Phase: fleet.Maintenance, NodeState: fleet.Active,
				Conditions: map[fleet.ConditionType]bool{}},
			Spec: &baremetalv1.MachineSpec{BmcEndpoint: "10.20.0.9", BmcCredentialsRef: "bmc", InstallDisk: "serial=QM1",
				SshEndpoint: "10.20.0.7:22", SshCredentialsRef: "ssh", SshHostKeys: []string{"SHA256:x"},
				TargetClusterRef: "c"},
			Site: "lab", BootID: "b", AgentID: "a-host",
		},
		Agents: []fleet.Candidate{
			{AgentID: "a-host", Role: "host", Live: true, Capabilities: []string{"reboot", "netboot"}, BootID: "b"},
			{AgentID: "a-site", Role: "site", Live: true, Capabilities: []string{"provider:agent", "ssh", "cluster",
				"bmc-password"}},
		},
		Boot: operation.Boot{Mode: operation.BootDisk, Segments: 1, InstallerReady: true},
		Plan: &baremetalv1.Plan{PlanId: "all", Steps: []*baremetalv1.Step{
			stage("rotate", workflow.RotateBMCPassword),
			{Name: "script", Kind: &baremetalv1.Step_Ssh{Ssh: &baremetalv1.SshCommand{Command: "s"}}},
			{Name: "cycle", Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{Mode: "bmc"}}},
			{Name: "erase", Kind: &baremetalv1.Step_Erase{Erase: &baremetalv1.EraseDisks{Path: "media"}}},
			repaveStep(),
			{Name: "reboot", Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{}}},
			{Name: "drain", Kind: &baremetalv1.Step_Drain{Drain: &baremetalv1.Drain{}}},
		}},
		Defaults: plan.BuiltInDefaults(),
		Asked: Asked{
			Scripts:   map[string]bool{"s": false},
			Threshold: workflow.DriftMajor,
			Images: map[string]Image{"tiny": {Kind: OSImage, Image: disk.Image{Ref: "tiny", Arch: "amd64", RawSize: 1 << 20,
				MinimumDisk: 1 << 20}}},
			AnyImage: true, SegmentModes: []string{"dhcp"}, Installers: []string{"amd64"},
			Inventory:      inventory(disk.Device{Name: "sda", Serial: "QM1", Size: 1 << 30}),
			SSHCredentials: map[string]bool{"ssh": true}, BMCCredentials: map[string]bool{"bmc": true},
			Clusters: map[string]bool{"c": true},
		},
	}
}

func inventory(disks ...disk.Device) Inventory {
	return Inventory{
		ReportedAt: noon.Add(-time.Hour),
		Machine:    disk.Machine{Arch: "amd64", Disks: disks, DisksKnown: true},
	}
}

// unknownCommand makes a command's outcome unknown.
func unknownCommand(f *Facts, reason string) {
	f.Machine.UnresolvedCommand = "cmd-1"
	f.Command = &operation.Command{ID: "cmd-1", State: operation.Unknown, Reason: reason}
	f.CommandOperation = CommandOperation{ID: "op-0", Type: fleet.RunPlan, PlanID: "other"}
}

// refusalCase makes one refusal of the world.
type refusalCase struct {
	rule, reason string
	change       func(*Facts)
	// step is the one that the refusal is about; without are those that the plan must not have for it.
	step    string
	without []string
	// undoes are rules that have no refusals on such a machine: a simulated one runs no installer.
	undoes []string
}

func (c refusalCase) apply(f *Facts) {
	f.Plan.Steps = slices.DeleteFunc(f.Plan.GetSteps(), func(s *baremetalv1.Step) bool {
		return slices.Contains(c.without, s.GetName())
	})
	c.change(f)
}

func (c refusalCase) String() string { return c.rule + " " + c.reason }

// refusalCases has every refusal of the table, in the order of their precedence.
var refusalCases = []refusalCase{
	{rule: "plan fits the type", reason: "INVALID_FIELD", change: func(f *Facts) {
		f.Request.Type = fleet.EnterMaintenance
	}},
	{rule: "plan is no workflow's", reason: "INVALID_FIELD", change: func(f *Facts) {
		f.Plan.Steps = append(f.Plan.Steps, stage("retire", "retire"))
	}},
	{rule: "machine takes work", reason: "MACHINE_DELETED", change: func(f *Facts) { f.Machine.Deleted = true }},
	{rule: "machine takes work", reason: "MACHINE_BLOCKED", change: func(f *Facts) {
		f.Machine.Conditions[fleet.RMA] = true
	}},
	{rule: "machine takes work", reason: "MACHINE_BUSY", change: func(f *Facts) {
		f.Machine.ActiveOperation, f.Machine.OperationID = true, "op-1"
	}},
	{rule: "machine takes work", reason: "WRONG_PHASE", change: func(f *Facts) { f.Machine.Phase = fleet.FactoryReady }},
	{rule: "machine takes work", reason: "FLEET_FROZEN", change: func(f *Facts) { f.Machine.Freeze.Since = noon }},
	{rule: "machine takes work", reason: "MACHINE_QUARANTINED", change: func(f *Facts) {
		f.Machine.NodeState = fleet.Quarantined
	}},
	{rule: "machine takes work", reason: "COMMAND_UNRESOLVED", change: func(f *Facts) {
		unknownCommand(f, "EVIDENCE_MISSING")
	}},
	{rule: "no workflow is open", reason: "WORKFLOW_ACTIVE", change: func(f *Facts) {
		f.OpenWorkflow = &OpenWorkflow{ID: "wf-1", State: "RUNNING"}
	}},
	{rule: "provider agrees", reason: "PROVIDER_DRIFT", change: func(f *Facts) {
		f.Machine.Provider = workflow.ProviderMAAS
		f.Observation = &workflow.Observation{State: maasstatus.StateFailed, SystemID: "abc", KnownID: "abc"}
	}},
	{rule: "kinds are built", reason: "STEP_KIND_NOT_WIRED", change: func(f *Facts) {
		f.Plan.Steps = append(f.Plan.Steps, &baremetalv1.Step{Name: "inspect", Kind: &baremetalv1.Step_Inspect{
			Inspect: &baremetalv1.Inspect{}}})
	}},
	{rule: "caller may rotate", reason: "SCOPE_TOO_SMALL", step: "rotate", change: func(f *Facts) {
		f.Caller.Scope = access.ScopeOperate
	}},
	{rule: "password can be rotated", reason: "CAPABILITY_MISSING", step: "rotate", change: func(f *Facts) {
		f.Machine.Provider = "metal3"
	}},
	{rule: "password can be rotated", reason: "NO_BMC", step: "rotate", change: func(f *Facts) {
		f.Machine.Spec.BmcEndpoint = ""
	}},
	{rule: "password can be rotated", reason: "BMC_SHARED", step: "rotate", change: func(f *Facts) {
		f.Neighbours = []Neighbour{{MachineID: "m-2", BMCEndpoint: "redfish://10.20.0.9"}}
		f.Machine.Spec.BmcEndpoint = "redfish://10.20.0.9"
	}},
	{rule: "steps are complete", reason: "MACHINE_HAS_NO_IMAGE", step: "repave-os", change: func(f *Facts) {
		of(f, "repave-os").GetRepave().Image = ""
	}},
	{rule: "steps are complete", reason: "CLUSTER_NOT_CONFIGURED", change: func(f *Facts) {
		f.Machine.Spec.TargetClusterRef = ""
	}},
	{rule: "no approval is missing", reason: "APPROVAL_REQUIRED", change: func(f *Facts) {
		f.Policy = &Policy{Name: "p", Machines: 3}
	}},
	{rule: "installer is ours", reason: "INVALID_FIELD", without: []string{"rotate"}, change: func(f *Facts) {
		f.Machine.Provider = workflow.ProviderMAAS
	}},
	{rule: "images exist", reason: "IMAGE_NOT_FOUND", step: "repave-os", change: func(f *Facts) { f.Images = nil }},
	{rule: "machine proves its identity", reason: "IDENTITY_LEVEL_TOO_LOW", change: func(f *Facts) {
		f.Identity = identity.LevelTPM
	}},
	{rule: "installation can succeed", reason: "INSTALLER_MISSING", change: func(f *Facts) {
		f.Boot.InstallerReady = false
	}},
	{rule: "installation can succeed", reason: "NO_BOOT_PATH", change: func(f *Facts) { f.Boot.Segments = 0 }},
	{rule: "installation can succeed", reason: "MEDIA_UNSUPPORTED", change: func(f *Facts) {
		f.Machine.Spec.BmcEndpoint = "ipmi://10.20.0.9"
	}},
	{rule: "installation can succeed", reason: "NO_INSTALL_ADDRESS", change: func(f *Facts) {
		f.SegmentModes = []string{"static"}
	}},
	{rule: "installation can succeed", reason: "IMAGE_UNSUPPORTED", step: "repave-os", change: func(f *Facts) {
		image := f.Images["tiny"]
		image.Arch = "arm64"
		f.Images = map[string]Image{"tiny": image}
	}},
	{rule: "installation can succeed", reason: "DISK_RULE_NO_UNIQUE_MATCH", step: "repave-os", change: func(f *Facts) {
		f.Inventory = inventory(disk.Device{Name: "sda", Serial: "QM2", Size: 1 << 30})
	}},
	{rule: "installation can succeed", reason: "IMAGE_TOO_LARGE", step: "repave-os", change: func(f *Facts) {
		f.Inventory = inventory(disk.Device{Name: "sda", Serial: "QM1", Size: 1 << 10})
	}},
	{rule: "seed reaches a system", reason: "CAPABILITY_MISSING", without: []string{"repave-os"}, change: func(f *Facts) {
		f.Request.Params = map[string]string{"seed": "s-1"}
	}},
	{rule: "works without an agent", reason: "NO_BMC", without: []string{"rotate"}, undoes: []string{
		"machine proves its identity", "installation can succeed"}, change: func(f *Facts) {
		f.Machine.Agentless, f.Machine.Simulated, f.Machine.Spec.BmcEndpoint = true, true, ""
	}},
	{rule: "works without an agent", reason: "MACHINE_AGENTLESS", change: func(f *Facts) {
		f.Machine.Agentless = true
		f.Plan.Steps = slices.Insert(f.Plan.GetSteps(), slices.Index(f.Plan.GetSteps(), of(f, "erase")), &baremetalv1.Step{
			Name: "config", Kind: &baremetalv1.Step_Net{Net: &baremetalv1.NetReconfig{Hostname: "h"}}})
	}},
	{rule: "works without an agent", reason: "CAPABILITY_MISSING", change: func(f *Facts) {
		f.Request.Inputs.Agentless, f.Machine.Site = true, ""
	}},
	{rule: "scripts can run", reason: "SCRIPT_NOT_FOUND", change: func(f *Facts) { f.Scripts = nil }},
	{rule: "scripts can run", reason: "SSH_NOT_CONFIGURED", change: func(f *Facts) { f.Machine.Spec.SshEndpoint = "" }},
	{rule: "scripts can run", reason: "SSH_HOST_KEY_UNKNOWN", change: func(f *Facts) { f.Machine.Spec.SshHostKeys = nil }},
	{rule: "scripts can run", reason: "CREDENTIALS_NOT_FOUND", change: func(f *Facts) { f.SSHCredentials = nil }},
	{rule: "clusters exist", reason: "CLUSTER_NOT_FOUND", change: func(f *Facts) { f.Clusters = nil }},
	{rule: "every step would begin", reason: "CAPABILITY_MISSING", step: "rotate", change: func(f *Facts) {
		f.Agents[1].Capabilities = []string{"provider:agent", "ssh", "cluster"}
	}},
	{rule: "BMC can be reached", reason: "CREDENTIALS_NOT_FOUND", change: func(f *Facts) { f.BMCCredentials = nil }},
}

func stage(name, of string) *baremetalv1.Step {
	return &baremetalv1.Step{Name: name,
		Kind: &baremetalv1.Step_WorkflowStage{WorkflowStage: &baremetalv1.WorkflowStage{Stage: of}}}
}

func of(f *Facts, step string) *baremetalv1.Step {
	i := slices.IndexFunc(f.Plan.GetSteps(), func(s *baremetalv1.Step) bool { return s.GetName() == step })
	if i < 0 {
		return nil
	}
	return f.Plan.GetSteps()[i]
}

// told is one that reads facts: it takes those that are asked for from a world, and no others.
func told(w *Facts, ask []Fact, f *Facts) {
	for _, fact := range ask {
		switch fact.Kind {
		case ScriptFact:
			f.Scripts = taken(f.Scripts, w.Scripts, fact.Ref)
		case CommandFact:
			f.Command, f.CommandOperation.ID = w.Command, w.CommandOperation.ID
		case CommandOperationFact:
			f.CommandOperation = w.CommandOperation
		case OpenWorkflowFact:
			f.OpenWorkflow = w.OpenWorkflow
		case ObservationFact:
			f.Observation = w.Observation
		case ThresholdFact:
			f.Threshold = w.Threshold
		case NeighboursFact:
			f.Neighbours = w.Neighbours
		case PolicyFact:
			f.Policy = w.Policy
		case ImageFact:
			f.Images = taken(f.Images, w.Images, fact.Ref)
		case AnyImageFact:
			f.AnyImage = w.AnyImage
		case IdentityFact:
			f.Identity = w.Identity
		case SegmentsFact:
			f.SegmentModes = w.SegmentModes
		case InventoryFact:
			f.Inventory = w.Inventory
		case InstallersFact:
			f.Installers = w.Installers
		case SSHCredentialsFact:
			f.SSHCredentials = taken(f.SSHCredentials, w.SSHCredentials, fact.Ref)
		case ClusterFact:
			f.Clusters = taken(f.Clusters, w.Clusters, fact.Ref)
		case BMCCredentialsFact:
			f.BMCCredentials = taken(f.BMCCredentials, w.BMCCredentials, fact.Ref)
		}
	}
	f.Learned(ask...)
}

func taken[V any](into, from map[string]V, key string) map[string]V {
	out := maps.Clone(into)
	if v, ok := from[key]; ok {
		if out == nil {
			out = map[string]V{}
		}
		out[key] = v
	}
	return out
}

// answer admits a start on a world of which only the asked facts are read. rounds is how often facts were read.
func answer(t *testing.T, w *Facts) (r Record, rounds int, err error) {
	t.Helper()
	f := *w
	f.Asked = Asked{}
	for ; rounds < 10; rounds++ {
		r, ask, err := Admit(&f)
		if err != nil || len(ask) == 0 {
			return r, rounds, err
		}
		told(w, ask, &f)
	}
	t.Fatal("facts are asked for without end")
	return r, rounds, nil
}

// ruleThatRefuses is the first rule of the table that refuses a world in which every fact is known.
func ruleThatRefuses(w *Facts) (rule string, err error) {
	f := *w
	for _, r := range rules {
		if err := r.refuse(&f); err != nil {
			return r.Name, err
		}
	}
	return "", nil
}

func changed(changes ...func(*Facts)) *Facts {
	f := world()
	for _, change := range changes {
		change(f)
	}
	return f
}

func TestAllThatIsAskedMayBegin(t *testing.T) {
	t.Parallel()
	r, rounds, err := answer(t, world())
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Steps) != 7 || !r.Destroys || r.Interrupts || !r.Judge || rounds != 1 {
		t.Errorf("%+v after %d rounds", r, rounds)
	}
}

// TestEveryRefusal makes each refusal of the table alone, by reading no more than what was asked for.
func TestEveryRefusal(t *testing.T) {
	t.Parallel()
	var made, want []string
	for _, c := range refusalCases {
		made = append(made, c.String())
		rule, all := ruleThatRefuses(changed(c.apply))
		_, _, err := answer(t, changed(c.apply))
		if rule != c.rule || failure.ReasonOf(all) != c.reason || fmt.Sprint(err) != fmt.Sprint(all) {
			t.Errorf("%s: rule %q refuses with %v, and with what is asked %v", c, rule, all, err)
		}
	}
	for _, r := range Rules() {
		for _, reason := range r.Reasons {
			want = append(want, r.Name+" "+reason)
		}
		if len(r.Reasons) == 0 {
			want = append(want, r.Name+" CAPABILITY_MISSING")
		}
	}
	if !slices.Equal(made, want) {
		t.Errorf("the cases are not the table:\n%q\n%q", made, want)
	}
}

// TestPrecedence makes every two refusals at once: the answer is the one that the table has first.
func TestPrecedence(t *testing.T) {
	t.Parallel()
	pairs := 0
	for i, first := range refusalCases {
		for _, second := range refusalCases[i+1:] {
			if slices.Contains(second.without, first.step) || slices.Contains(first.without, second.step) ||
				slices.Contains(second.undoes, first.rule) {
				continue
			}
			rule, all := ruleThatRefuses(changed(second.apply, first.apply))
			_, _, err := answer(t, changed(second.apply, first.apply))
			if pairs++; rule+" "+failure.ReasonOf(all) != first.String() || fmt.Sprint(err) != fmt.Sprint(all) {
				t.Errorf("%s before %s: rule %q refuses with %v, and with what is asked %v", first, second, rule, all, err)
			}
		}
	}
	if pairs < 750 {
		t.Errorf("%d pairs", pairs)
	}
}

// TestFactsAreReadWhereTheyDecide holds what a start reads besides the record of its machine.
func TestFactsAreReadWhereTheyDecide(t *testing.T) {
	t.Parallel()
	only := func(steps ...*baremetalv1.Step) func(*Facts) { return func(f *Facts) { f.Plan.Steps = steps } }
	reboot := &baremetalv1.Step{Name: "reboot", Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{}}}
	byBMC := &baremetalv1.Step{Name: "reboot", Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{Mode: "bmc"}}}
	maas := func(f *Facts) { f.Machine.Provider = workflow.ProviderMAAS }
	for name, c := range map[string]struct {
		change []func(*Facts)
		want   []FactKind
	}{
		"a reboot": {[]func(*Facts){only(reboot)}, nil},
		"a reboot of a busy machine": {[]func(*Facts){only(repaveStep()), func(f *Facts) {
			f.Machine.ActiveOperation = true
		}}, nil},
		"a reboot through the BMC": {[]func(*Facts){only(byBMC)}, []FactKind{BMCCredentialsFact}},
		"a script":                 {[]func(*Facts){only(of(world(), "script"))}, []FactKind{ScriptFact, SSHCredentialsFact}},
		"a drain":                  {[]func(*Facts){only(of(world(), "drain"))}, []FactKind{ClusterFact}},
		"an installation": {[]func(*Facts){only(repaveStep())}, []FactKind{OpenWorkflowFact, PolicyFact, ImageFact,
			IdentityFact, SegmentsFact, InventoryFact, InstallersFact}},
		"an installation of the controller's own": {[]func(*Facts){only(repaveStep()), func(f *Facts) {
			f.Caller = access.Caller{}
		}}, []FactKind{OpenWorkflowFact, ImageFact, IdentityFact, SegmentsFact, InventoryFact, InstallersFact}},
		"work on a machine of MAAS": {[]func(*Facts){only(plan.RepaveByMAAS().GetSteps()...), maas},
			[]FactKind{OpenWorkflowFact, ObservationFact, ThresholdFact, PolicyFact}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := changed(c.change...)
			f := *w
			f.Asked = Asked{}
			var got []FactKind
			for {
				_, ask, err := Admit(&f)
				for _, fact := range ask {
					got = append(got, fact.Kind)
				}
				if err != nil || len(ask) == 0 {
					break
				}
				told(w, ask, &f)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("read %v, want %v", got, c.want)
			}
		})
	}
}

// TestTheSameWorkMayBeAskedAgain lets a start pass that asks for the operation of a command without evidence.
func TestTheSameWorkMayBeAskedAgain(t *testing.T) {
	t.Parallel()
	same := func(f *Facts) { f.CommandOperation.PlanID = "all" }
	quarantined := func(f *Facts) { f.Machine.NodeState = fleet.Quarantined }
	drain := func(f *Facts) { f.Request.Internal, f.Request.PlanID = true, node.DrainPlan }
	for name, c := range map[string]struct {
		change []func(*Facts)
		want   string
	}{
		"the same plan": {[]func(*Facts){same}, ""},
		"another plan":  {nil, "COMMAND_UNRESOLVED"},
		"another type": {[]func(*Facts){same, func(f *Facts) { f.CommandOperation.Type = fleet.Reimage }},
			"COMMAND_UNRESOLVED"},
		"a command under way": {[]func(*Facts){same, func(f *Facts) { f.Command.Reason = "" }}, "COMMAND_UNRESOLVED"},
		"a quarantined node":  {[]func(*Facts){same, quarantined}, "MACHINE_QUARANTINED"},
		"its drain":           {[]func(*Facts){same, quarantined, drain}, ""},
		"the drain of a contested node": {[]func(*Facts){same, quarantined, drain, func(f *Facts) {
			f.Machine.QuarantineReason = "CLONE_DETECTED"
		}}, "MACHINE_QUARANTINED"},
	} {
		w := changed(append([]func(*Facts){func(f *Facts) { unknownCommand(f, "EVIDENCE_MISSING") }}, c.change...)...)
		if _, _, err := answer(t, w); err != nil && failure.ReasonOf(err) != c.want || err == nil && c.want != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnAttemptIsJudgedByItsWorkflow leaves to the workflow what it has judged itself.
func TestAnAttemptIsJudgedByItsWorkflow(t *testing.T) {
	t.Parallel()
	attempt := func(f *Facts) {
		f.Plan.Steps = f.Plan.GetSteps()[1:]
		f.Stage = &workflow.StageFacts{CredentialsKnown: true, ClusterKnown: true}
	}
	for _, c := range refusalCases {
		if c.rule != "no workflow is open" && c.rule != "provider agrees" {
			continue
		}
		if rule, _ := ruleThatRefuses(changed(c.apply, attempt)); rule == c.rule {
			t.Errorf("%s refuses an attempt", rule)
		}
	}
	removal := changed(attempt, func(f *Facts) { f.RemovesRecord, f.Machine.NodeState = true, fleet.Retired })
	if rule, err := ruleThatRefuses(removal); err != nil {
		t.Errorf("a removal: %s, %v", rule, err)
	}
	removal.Machine.OperationID = "op-1"
	if rule, err := ruleThatRefuses(removal); failure.ReasonOf(err) != "MACHINE_BUSY" {
		t.Errorf("a removal from a busy machine: %s, %v", rule, err)
	}
}

func TestHarm(t *testing.T) {
	t.Parallel()
	reboot := func(f *Facts) {
		f.Plan.Steps = []*baremetalv1.Step{{Name: "reboot", Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{}}}}
	}
	ready := func(f *Facts) {
		f.Machine.Phase = fleet.Ready
		f.Machine.Conditions = map[fleet.ConditionType]bool{fleet.Reachable: true, fleet.Provisioned: true}
	}
	script := func(f *Facts) { f.Plan.Steps = []*baremetalv1.Step{of(f, "script")}; f.Scripts["s"] = true }
	for name, c := range map[string]struct {
		change                      []func(*Facts)
		destroys, interrupts, judge bool
	}{
		"a reboot in maintenance":  {[]func(*Facts){reboot}, false, false, false},
		"a reboot in service":      {[]func(*Facts){reboot, ready}, false, true, false},
		"a script that loses data": {[]func(*Facts){script}, true, false, true},
		"work that was judged": {[]func(*Facts){script, func(f *Facts) { f.Request.Judged = true }},
			true, false, false},
		"a state that destroys": {[]func(*Facts){reboot, func(f *Facts) { f.Request.Harm = kind.Destroys }},
			true, false, true},
		"a state that interrupts": {[]func(*Facts){reboot, func(f *Facts) { f.Request.Harm = kind.Interrupts }},
			false, true, false},
		"an installation": {nil, true, false, true},
	} {
		r, _, err := answer(t, changed(c.change...))
		if err != nil || r.Destroys != c.destroys || r.Interrupts != c.interrupts || r.Judge != c.judge {
			t.Errorf("%s: %t %t %t, %v", name, r.Destroys, r.Interrupts, r.Judge, err)
		}
	}
}

// TestADestructiveScriptDestroys: a script that the catalogue marks is refused as a step that loses data is, while a
// workflow is open and where the provider disagrees.
func TestADestructiveScriptDestroys(t *testing.T) {
	t.Parallel()
	script := func(f *Facts) {
		f.Plan.Steps = slices.DeleteFunc(f.Plan.GetSteps(), func(s *baremetalv1.Step) bool { return s.GetSsh() == nil })
	}
	open := func(f *Facts) { f.OpenWorkflow = &OpenWorkflow{ID: "wf-1", State: "FAILED"} }
	drift := func(f *Facts) {
		f.Machine.Provider = workflow.ProviderMAAS
		f.Observation = &workflow.Observation{State: maasstatus.StateFailed, SystemID: "abc", KnownID: "abc"}
	}
	for reason, change := range map[string]func(*Facts){"WORKFLOW_ACTIVE": open, "PROVIDER_DRIFT": drift} {
		for destructive, want := range map[bool]string{true: reason, false: ""} {
			_, _, err := answer(t, changed(script, change, func(f *Facts) {
				f.Scripts = map[string]bool{"s": destructive}
			}))
			if got := failure.ReasonOf(err); got != want {
				t.Errorf("%s, destructive %v: %v", reason, destructive, err)
			}
		}
	}
}
