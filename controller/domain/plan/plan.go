// Package plan holds the built-in plans and the rules for plans: which are valid, which lose data, and how a step's
// empty fields are filled from the request, the machine and the server's defaults. It is pure.
package plan

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/failure"
)

// KindDefault is the server's default for the steps of one kind.
type KindDefault struct {
	Timeout time.Duration
	Retries int
}

// Defaults by step kind, the oneof field's name.
type Defaults map[string]KindDefault

// BuiltInDefaults are the limits that hold where neither plan nor configuration says otherwise.
func BuiltInDefaults() Defaults {
	out := Defaults{}
	for _, k := range kind.All() {
		if k.Step {
			out[string(k.Kind)] = KindDefault{k.Timeout, k.Retries}
		}
	}
	return out
}

// Merge lays other over d.
func (d Defaults) Merge(other Defaults) Defaults {
	out := maps.Clone(d)
	maps.Copy(out, other)
	return out
}

// maxTimeout bounds a step: an operation must end.
const maxTimeout = 24 * time.Hour

var stepName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// KindOf names the kind of a step: the oneof field's name, empty when none is set.
func KindOf(s *baremetalv1.Step) string {
	m := s.ProtoReflect()
	f := m.WhichOneof(m.Descriptor().Oneofs().ByName("kind"))
	if f == nil {
		return ""
	}
	return string(f.Name())
}

// Validate refuses a plan that cannot be stored, and names the field.
func Validate(p *baremetalv1.Plan) error {
	if len(p.GetSteps()) == 0 {
		return invalid("INVALID_FIELD", "plan.steps", "a plan has at least one step")
	}
	if len(p.GetSteps()) > 100 {
		return invalid("INVALID_FIELD", "plan.steps", "a plan has at most 100 steps")
	}
	seen := map[string]bool{}
	for i, s := range p.GetSteps() {
		field := fmt.Sprintf("plan.steps[%d]", i)
		if err := validateStep(s, field); err != nil {
			return err
		}
		if seen[s.GetName()] {
			return invalid("DUPLICATE_STEP_NAME", field+".name", "the name "+s.GetName()+" is taken by an earlier step")
		}
		seen[s.GetName()] = true
	}
	return validateRMA(p)
}

func validateStep(s *baremetalv1.Step, field string) error {
	kind := KindOf(s)
	switch {
	case kind == "" || len(s.ProtoReflect().GetUnknown()) > 0:
		return invalid("UNKNOWN_STEP_KIND", field+".kind", "the step has no kind that this server knows")
	case kind == workflow.CheckKind && !standalone(s):
		return invalid("UNKNOWN_STEP_KIND", field+".kind", kind+" belongs to the built-in plans of workflows")
	case kind == "set_phase":
		return invalid("UNKNOWN_STEP_KIND", field+".kind", "set_phase belongs to the built-in maintenance plans")
	case !stepName.MatchString(s.GetName()):
		return invalid("INVALID_FIELD", field+".name", "1 to 63 characters of a-z, 0-9 and -")
	case s.GetTimeoutSeconds() < 0 || time.Duration(s.GetTimeoutSeconds())*time.Second > maxTimeout:
		return invalid("INVALID_FIELD", field+".timeout_seconds", "0 to 86400")
	case s.GetMaxRetries() < -1 || s.GetMaxRetries() > 100:
		return invalid("INVALID_FIELD", field+".max_retries", "-1 to 100")
	}
	return validateMode(s, kind, field)
}

func validateMode(s *baremetalv1.Step, kind, field string) error {
	switch kind {
	case "reboot":
		return oneOf(field+".reboot.mode", s.GetReboot().GetMode(), "", "graceful", "force", "bmc")
	case "netboot":
		return oneOf(field+".netboot.mode", s.GetNetboot().GetMode(), "", "PXE", "HTTP", "DISK")
	case "repave":
		if s.GetRepave().GetAgentless() {
			return invalid("INVALID_FIELD", field+".repave.agentless", "ask for it where the plan is run")
		}
		return oneOf(field+".repave.path", s.GetRepave().GetPath(), append([]string{""}, InstallerPaths...)...)
	case "erase":
		if err := oneOf(field+".erase.path", s.GetErase().GetPath(), append([]string{""}, InstallerPaths...)...); err != nil {
			return err
		}
		return oneOf(field+".erase.method", s.GetErase().GetMethod(), "", "auto", "nvme-sanitize", "nvme-format",
			"ata-secure-erase", "discard", "overwrite")
	case "ssh":
		return validateScript(s.GetSsh(), field+".ssh")
	case "join", "verify", "drain", "uncordon":
		return validateCluster(s, field)
	case "rma":
		return oneOf(field+".rma.action", s.GetRma().GetAction(), "", "flag", "return")
	case "test_hardware":
		return ValidateTest(s.GetTestHardware(), func(name string) string { return field + ".test_hardware." + name })
	case "provider_action":
		return validateProvider(s.GetProviderAction(), field+".provider_action")
	default:
		return nil
	}
}

// InstallerPath is how a step on disks wants the machine to get into the installer; empty for any other step.
func InstallerPath(s *baremetalv1.Step) string {
	if e := s.GetErase(); e != nil {
		return e.GetPath()
	}
	return s.GetRepave().GetPath()
}

// InstallerPaths are the ways into the installer that a step may name.
var InstallerPaths = []string{"auto", "kexec", "bootnext", "bmc", "media"}

func oneOf(field, value string, allowed ...string) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	return invalid("INVALID_FIELD", field, fmt.Sprintf("%q is none of %q", value, allowed[1:]))
}

func invalid(reason, field, description string) error {
	return failure.Invalid(reason, "%s: %s", field, description).WithField(field, description)
}

// Destructive reports whether the plan loses data or takes the machine away, and so needs phase MAINTENANCE.
func Destructive(p *baremetalv1.Plan) bool { return HarmOf(p) == kind.Destroys }

// HarmOf returns the harm of the plan's worst step.
func HarmOf(p *baremetalv1.Plan) kind.Harm {
	worst := kind.Harmless
	for _, s := range p.GetSteps() {
		worst = max(worst, harmOf(s))
	}
	return worst
}

func harmOf(s *baremetalv1.Step) kind.Harm {
	loses := false
	switch KindOf(s) {
	case "drain":
		loses = losesData(s.GetDrain())
	case "ssh":
		loses = s.GetSsh().GetDestructive()
	case "workflow_stage":
		if s.GetWorkflowStage().GetStage() == workflow.NothingToDrain {
			return kind.Interrupts // the machine leaves service all the same
		}
		loses = s.GetWorkflowStage().GetStage() == workflow.SwitchOff
	case "provider_action":
		if slices.Contains(harmlessActions, s.GetProviderAction().GetAction()) {
			return kind.Harmless
		}
		loses = slices.Contains(destructiveActions, s.GetProviderAction().GetAction())
	case "set_phase":
		if s.GetSetPhase().GetPhase() != string(fleet.Maintenance) {
			return kind.Harmless
		}
	}
	if loses {
		return kind.Destroys
	}
	return kind.Of(kind.Kind(KindOf(s))).Harm
}

// Housekeeping says that the plan changes the phase and touches no machine.
func Housekeeping(p *baremetalv1.Plan) bool {
	return slices.ContainsFunc(p.GetSteps(), func(s *baremetalv1.Step) bool { return KindOf(s) == "set_phase" })
}

// OfWorkflow says that the plan holds stages of a workflow, which alone runs it.
func OfWorkflow(p *baremetalv1.Plan) bool {
	return slices.ContainsFunc(p.GetSteps(), func(s *baremetalv1.Step) bool {
		return KindOf(s) == workflow.CheckKind && !standalone(s)
	})
}

// RotatesPassword says that the plan changes the password of a BMC, which only an admin may start.
func RotatesPassword(p *baremetalv1.Plan) bool {
	return slices.ContainsFunc(p.GetSteps(), func(s *baremetalv1.Step) bool {
		return s.GetWorkflowStage().GetStage() == workflow.RotateBMCPassword
	})
}

// standalone says that the step is a stage that is started outside of any workflow.
func standalone(s *baremetalv1.Step) bool {
	return workflow.Standalone(s.GetWorkflowStage().GetStage())
}

// NotWired names the first step of a kind that this version cannot run, nil if there is none.
func NotWired(p *baremetalv1.Plan) *baremetalv1.Step {
	for _, s := range p.GetSteps() {
		if !kind.Of(kind.Kind(KindOf(s))).Runs && !standalone(s) {
			return s
		}
	}
	return nil
}

// LeavesSystem says that the plan works on the BMC's account alone.
func LeavesSystem(p *baremetalv1.Plan) bool { return RotatesPassword(p) && len(p.GetSteps()) == 1 }

// Digest identifies a plan's content. Of a sealed argument only the keyed digest counts, which stands before the last
// colon: the sealed text differs each time.
func Digest(p *baremetalv1.Plan) ([]byte, error) {
	c := proto.Clone(p).(*baremetalv1.Plan)
	c.CreatedAt, c.Used, c.BuiltIn, c.Version = nil, false, false, 0
	for _, s := range c.GetSteps() {
		err := MapSecretArgs(s.GetSsh(), func(arg string) (string, error) {
			return arg[:max(0, strings.LastIndex(arg, ":"))], nil
		})
		if err != nil {
			return nil, err
		}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("serialize plan: %w", err)
	}
	sum := sha256.Sum256(b)
	return sum[:], nil
}

// Inputs fill what a plan leaves open.
type Inputs struct {
	ImageRef      string
	RebootMode    string
	NetbootMode   string
	InstallerPath string
	// Agentless: the system that is written gets no agent.
	Agentless bool
	// MachinePath is how the machine gets into the installer where nobody says it.
	MachinePath string
	// ClusterRef is the cluster that the machine is meant for.
	ClusterRef     string
	TimeoutSeconds int32
	// ProviderImage is what a provider deploys, in its own words; of ImageRef only what was asked for, or the machine's
	// own.
	ProviderImage string
	Config        *baremetalv1.NetReconfig
	// Test says which hardware is tested and how long, as far as the plan leaves it open.
	Test *baremetalv1.TestHardware
}

// Filled is a step that is ready to run.
type Filled struct {
	Step    *baremetalv1.Step
	Kind    string
	Timeout time.Duration
	Retries int
}

// How long the first start of a new system may take at least: firmware that tests its memory for minutes, a root file
// system that grows, keys that are made. Without the agent it is heard when cloud-init has done all it was told,
// packages included; MAAS gives a deployment as long (its setting node_timeout).
const (
	FirstBoot             = 15 * time.Minute
	FirstBootWithoutAgent = 30 * time.Minute
)

// Fill completes the steps of a plan. It fails when a step needs an image and nobody names one.
func Fill(p *baremetalv1.Plan, in Inputs, d Defaults) ([]Filled, error) {
	out := make([]Filled, 0, len(p.GetSteps()))
	written := false
	for _, s := range p.GetSteps() {
		f := Filled{Step: proto.Clone(s).(*baremetalv1.Step), Kind: KindOf(s)}
		if err := fillFields(f.Step, in); err != nil {
			return nil, err
		}
		f.Timeout, f.Retries = limits(s, in, d[f.Kind], p.GetBuiltIn())
		if f.Kind == "test_hardware" {
			f.Timeout = max(f.Timeout, TestDuration(f.Step.GetTestHardware())+testGrace)
		}
		written = written || f.Kind == "repave"
		if written && f.Kind == "reboot" && in.TimeoutSeconds == 0 {
			f.Timeout = max(f.Timeout, firstBoot(s, in, p.GetBuiltIn()))
		}
		out = append(out, f)
	}
	return out, nil
}

func fillFields(s *baremetalv1.Step, in Inputs) error {
	switch KindOf(s) {
	case "repave":
		r := s.GetRepave()
		r.Image = first(r.GetImage(), in.ImageRef)
		r.Path = first(r.GetPath(), in.InstallerPath, in.MachinePath)
		r.Agentless = in.Agentless
		if r.GetImage() == "" {
			return failure.Precondition("MACHINE_HAS_NO_IMAGE",
				"neither the request, the plan, the machine nor the server names an image").
				WithField("image_ref", "name an image, or set spec.default_image_ref of the machine")
		}
	case "erase":
		s.GetErase().Path = first(s.GetErase().GetPath(), in.MachinePath)
	case "reboot":
		s.GetReboot().Mode = first(s.GetReboot().GetMode(), in.RebootMode, "graceful")
	case "netboot":
		s.GetNetboot().Mode = first(s.GetNetboot().GetMode(), in.NetbootMode, "PXE")
	case "join", "verify", "drain", "uncordon":
		return fillCluster(s, in.ClusterRef)
	case "test_hardware":
		fillTest(s.GetTestHardware(), in.Test)
	case "provider_action":
		fillProvider(s.GetProviderAction(), in)
	case "net":
		if proto.Size(s.GetNet()) == 0 && in.Config != nil {
			proto.Merge(s.GetNet(), in.Config)
		}
	}
	return nil
}

// firstBoot is what a step at least gets that starts a new system. A client's plan that gives its own time to a system
// with the agent keeps it.
func firstBoot(s *baremetalv1.Step, in Inputs, builtIn bool) time.Duration {
	switch {
	case in.Agentless:
		return FirstBootWithoutAgent
	case builtIn || s.GetTimeoutSeconds() == 0:
		return FirstBoot
	}
	return 0
}

// limits are those of the request, else of the step, else of its kind. A plan that is built in names the built-in
// limits of a kind: what the configuration says of that kind holds in their place.
func limits(s *baremetalv1.Step, in Inputs, d KindDefault, builtIn bool) (time.Duration, int) {
	timeout, retries := d.Timeout, d.Retries
	known := BuiltInDefaults()[KindOf(s)]
	if own := time.Duration(s.GetTimeoutSeconds()) * time.Second; own > 0 && (!builtIn || own != known.Timeout) {
		timeout = own
	}
	switch {
	case s.GetMaxRetries() > 0 && (!builtIn || int(s.GetMaxRetries()) != known.Retries):
		retries = int(s.GetMaxRetries())
	case s.GetMaxRetries() < 0:
		retries = 0
	}
	if in.TimeoutSeconds > 0 {
		timeout = time.Duration(in.TimeoutSeconds) * time.Second
	}
	return timeout, retries
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// BuiltIn returns the plans that every server has. Those of operation types that are not wired are published too, so
// that clients can read what they will do.
func BuiltIn() []*baremetalv1.Plan {
	reboot := &baremetalv1.Step{Name: "reboot", TimeoutSeconds: 300, MaxRetries: 2,
		Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{}}}
	netboot := &baremetalv1.Step{Name: "set-netboot", TimeoutSeconds: 60, MaxRetries: 2,
		Kind: &baremetalv1.Step_Netboot{Netboot: &baremetalv1.SetNetboot{}}}
	repave := &baremetalv1.Step{Name: "repave-os", TimeoutSeconds: 1800, MaxRetries: 1,
		Kind: &baremetalv1.Step_Repave{Repave: &baremetalv1.RepaveImage{}}}
	join, verify := joinSteps()
	phase := func(p fleet.Phase) *baremetalv1.Step {
		return &baremetalv1.Step{Name: "set-phase",
			Kind: &baremetalv1.Step_SetPhase{SetPhase: &baremetalv1.SetPhase{Phase: string(p)}}}
	}
	mk := func(id, name string, steps ...*baremetalv1.Step) *baremetalv1.Plan {
		return &baremetalv1.Plan{PlanId: id, DisplayName: name, Steps: steps, BuiltIn: true}
	}
	return append([]*baremetalv1.Plan{
		mk("reboot", "Reboot", reboot),
		mk("netboot", "Boot from the network next time", netboot),
		mk("netboot-now", "Boot from the network now", netboot, reboot),
		mk("repave", "Repave", netboot, repave, reboot),
		RepaveByMAAS(),
		mk("repave-join", "Repave and join a cluster", netboot, repave, reboot, join, verify),
		mk("erase", "Erase the disks", netboot, &baremetalv1.Step{Name: "erase-disks",
			Kind: &baremetalv1.Step_Erase{Erase: &baremetalv1.EraseDisks{}}}),
		mk("test-hardware", "Test the hardware", &baremetalv1.Step{Name: "test-hardware",
			Kind: &baremetalv1.Step_TestHardware{TestHardware: &baremetalv1.TestHardware{}}}),
		mk("net-reconfig", "Reconfigure the host",
			&baremetalv1.Step{Name: "reconfigure", Kind: &baremetalv1.Step_Net{Net: &baremetalv1.NetReconfig{}}}),
		mk("enter-maintenance", "Enter maintenance", phase(fleet.Maintenance)),
		mk("exit-maintenance", "Exit maintenance", phase(fleet.Ready)),
		mk("node-transition", "Record a change of the node state",
			&baremetalv1.Step{Name: "record", Kind: &baremetalv1.Step_SetPhase{SetPhase: &baremetalv1.SetPhase{}}}),
		mk("join", "Join a cluster", join, verify),
		mk("upgrade", "Upgrade the cluster node", leaveStep(), repave, reboot, join, verify),
		mk("drain", "Drain the cluster node", drainStep()), mk("leave", "Leave the cluster", leaveStep()),
		mk(DrainNone, "Drain a machine that is in no cluster", loneStep("drain", workflow.NothingToDrain, time.Minute)),
		mk("uncordon", "Use the cluster node again", uncordonStep()),
		mk("power-on", "Switch on", loneStep("switch-on", workflow.SwitchOn, 10*time.Minute)),
		mk("power-off", "Switch off", loneStep("switch-off", workflow.SwitchOff, 10*time.Minute)),
		mk("bmc-rotate-password", "Give the BMC a new password",
			loneStep("rotate-password", workflow.RotateBMCPassword, 10*time.Minute)),
		mk("reported-install", "Wait for an installer that reports by itself",
			loneStep("reported-install", workflow.ReportedInstall, 6*time.Hour)),
		mk("replace", "Wait for a machine whose hardware is replaced",
			loneStep("await-replacement", workflow.AwaitReplacement, 14*24*time.Hour)),
		mk("rma", "Return or replace", rmaStep("")), mk("rma-return", "Back from return or replacement", rmaStep("return")),
	}, workflow.Plans()...)
}
