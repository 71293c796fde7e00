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
)

// KindDefault is the server's default for the steps of one kind.
type KindDefault struct {
	Timeout time.Duration
	Retries int
}

// Defaults by step kind, the oneof field's name.
type Defaults map[string]KindDefault

// BuiltInDefaults are the limits that hold where neither plan nor configuration has others.
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

// Validate refuses a plan that cannot be stored, and names the field.
func Validate(p *baremetalv1.Plan) error {
	if len(p.GetSteps()) == 0 {
		return kind.Invalid("INVALID_FIELD", "plan.steps", "a plan has at least one step")
	}
	if len(p.GetSteps()) > 100 {
		return kind.Invalid("INVALID_FIELD", "plan.steps", "a plan has at most 100 steps")
	}
	seen := map[string]bool{}
	for i, s := range p.GetSteps() {
		field := fmt.Sprintf("plan.steps[%d]", i)
		if err := validateStep(s, field); err != nil {
			return err
		}
		if seen[s.GetName()] {
			return kind.Invalid("DUPLICATE_STEP_NAME", field+".name", "the name "+s.GetName()+" is taken by an earlier step")
		}
		seen[s.GetName()] = true
	}
	return validateRMA(p)
}

func validateStep(s *baremetalv1.Step, field string) error {
	k := kind.OfStep(s)
	of := kind.Of(k)
	switch {
	case k == "" || len(s.ProtoReflect().GetUnknown()) > 0:
		return kind.Invalid("UNKNOWN_STEP_KIND", field+".kind", "the step has no kind that this server knows")
	case of.Reserved != "" && !standalone(s):
		return kind.Invalid("UNKNOWN_STEP_KIND", field+".kind", of.Reserved)
	case !stepName.MatchString(s.GetName()):
		return kind.Invalid("INVALID_FIELD", field+".name", "1 to 63 characters of a-z, 0-9 and -")
	case s.GetTimeoutSeconds() < 0 || time.Duration(s.GetTimeoutSeconds())*time.Second > maxTimeout:
		return kind.Invalid("INVALID_FIELD", field+".timeout_seconds", "0 to 86400")
	case s.GetMaxRetries() < -1 || s.GetMaxRetries() > 100:
		return kind.Invalid("INVALID_FIELD", field+".max_retries", "-1 to 100")
	}
	return kind.Check(s, field)
}

// InstallerPath is how a step on disks wants the machine to get into the installer; empty for any other step.
func InstallerPath(s *baremetalv1.Step) string {
	if e := s.GetErase(); e != nil {
		return e.GetPath()
	}
	return s.GetRepave().GetPath()
}

// Destructive reports whether the plan loses data or takes the machine away, and so needs phase MAINTENANCE.
func Destructive(p *baremetalv1.Plan) bool { return HarmOf(p) == kind.Destroys }

// HarmOf returns the harm of the plan's worst step.
func HarmOf(p *baremetalv1.Plan) kind.Harm {
	worst := kind.Harmless
	for _, s := range p.GetSteps() {
		worst = max(worst, kind.HarmOf(s))
	}
	return worst
}

// Housekeeping reports whether the plan changes the phase and touches no machine.
func Housekeeping(p *baremetalv1.Plan) bool {
	return slices.ContainsFunc(p.GetSteps(), func(s *baremetalv1.Step) bool {
		return kind.Of(kind.OfStep(s)).Control == kind.SetsPhase
	})
}

// OfWorkflow reports whether the plan holds stages of a workflow, which alone runs it.
func OfWorkflow(p *baremetalv1.Plan) bool {
	return slices.ContainsFunc(p.GetSteps(), func(s *baremetalv1.Step) bool {
		return kind.Of(kind.OfStep(s)).Control == kind.ChecksStage && !standalone(s)
	})
}

// RotatesPassword reports whether the plan changes the password of a BMC, which only an admin may start.
func RotatesPassword(p *baremetalv1.Plan) bool {
	return slices.ContainsFunc(p.GetSteps(), func(s *baremetalv1.Step) bool {
		return s.GetWorkflowStage().GetStage() == workflow.RotateBMCPassword
	})
}

// standalone reports whether the step is a stage that is started outside of any workflow.
func standalone(s *baremetalv1.Step) bool {
	return workflow.Standalone(s.GetWorkflowStage().GetStage())
}

// NotWired names the first step of a kind that this version cannot run, nil if there is none.
func NotWired(p *baremetalv1.Plan) *baremetalv1.Step {
	for _, s := range p.GetSteps() {
		if !kind.Of(kind.OfStep(s)).Runs && !standalone(s) {
			return s
		}
	}
	return nil
}

// LeavesSystem reports whether the plan works on the BMC's account alone.
func LeavesSystem(p *baremetalv1.Plan) bool { return RotatesPassword(p) && len(p.GetSteps()) == 1 }

// Digest identifies a plan's content. Of a sealed argument only the keyed digest counts, which stands before the last
// colon: the sealed text differs each time.
func Digest(p *baremetalv1.Plan) ([]byte, error) {
	c := proto.Clone(p).(*baremetalv1.Plan)
	c.CreatedAt, c.Used, c.BuiltIn, c.Version = nil, false, false, 0
	for _, s := range c.GetSteps() {
		err := kind.MapSecretArgs(s.GetSsh(), func(arg string) (string, error) {
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

// Filled is a step that is ready to run.
type Filled struct {
	Step    *baremetalv1.Step
	Kind    kind.Kind
	Timeout time.Duration
	Retries int
}

// How long the first start of a new system may take at least: firmware that tests its memory for minutes, a root file
// system that grows, keys that are made. A system without the agent reports when cloud-init has ended, packages
// included; MAAS allows a deployment the same time (its setting node_timeout).
const (
	FirstBoot             = 15 * time.Minute
	FirstBootWithoutAgent = 30 * time.Minute
)

// Fill completes the steps of a plan. It fails when a step needs an image and none is named.
func Fill(p *baremetalv1.Plan, in kind.Inputs, d Defaults) ([]Filled, error) {
	out := make([]Filled, 0, len(p.GetSteps()))
	written := false
	for _, s := range p.GetSteps() {
		f := Filled{Step: proto.Clone(s).(*baremetalv1.Step), Kind: kind.OfStep(s)}
		if err := kind.Fill(f.Step, in); err != nil {
			return nil, err
		}
		f.Timeout, f.Retries = limits(s, in, d[string(f.Kind)], p.GetBuiltIn())
		of := kind.Of(f.Kind)
		if of.Least != nil {
			f.Timeout = max(f.Timeout, of.Least(f.Step))
		}
		written = written || of.WritesSystem
		if written && of.ProvenByBoot && in.TimeoutSeconds == 0 {
			f.Timeout = max(f.Timeout, firstBoot(s, in, p.GetBuiltIn()))
		}
		out = append(out, f)
	}
	return out, nil
}

// firstBoot is what a step at least gets that starts a new system. A client's plan with a time of its own for a system
// with the agent keeps it.
func firstBoot(s *baremetalv1.Step, in kind.Inputs, builtIn bool) time.Duration {
	switch {
	case in.Agentless:
		return FirstBootWithoutAgent
	case builtIn || s.GetTimeoutSeconds() == 0:
		return FirstBoot
	}
	return 0
}

// limits are those of the request, else of the step, else of its kind. A plan that is built in names the built-in
// limits of a kind: the configuration's limits of that kind hold in their place.
func limits(s *baremetalv1.Step, in kind.Inputs, d KindDefault, builtIn bool) (time.Duration, int) {
	timeout, retries := d.Timeout, d.Retries
	known := kind.Of(kind.OfStep(s))
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
		mk(DrainNone, "Drain a machine that is in no cluster", standaloneStep("drain", workflow.NothingToDrain, time.Minute)),
		mk("uncordon", "Use the cluster node again", uncordonStep()),
		mk("power-on", "Switch on", standaloneStep("switch-on", workflow.SwitchOn, 10*time.Minute)),
		mk("power-off", "Switch off", standaloneStep("switch-off", workflow.SwitchOff, 10*time.Minute)),
		mk("bmc-rotate-password", "Give the BMC a new password",
			standaloneStep("rotate-password", workflow.RotateBMCPassword, 10*time.Minute)),
		mk("reported-install", "Wait for an installer that reports by itself",
			standaloneStep("reported-install", workflow.ReportedInstall, 6*time.Hour)),
		mk("replace", "Wait for a machine whose hardware is replaced",
			standaloneStep("await-replacement", workflow.AwaitReplacement, 14*24*time.Hour)),
		mk("rma", "Return or replace", rmaStep("")), mk("rma-return", "Back from return or replacement", rmaStep("return")),
	}, workflow.Plans()...)
}
