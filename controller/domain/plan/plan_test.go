package plan_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/internal/failure"
)

func reboot(name string) *baremetalv1.Step {
	return &baremetalv1.Step{Name: name, Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{}}}
}

func repave(image string) *baremetalv1.Step {
	return &baremetalv1.Step{Name: "repave",
		Kind: &baremetalv1.Step_Repave{Repave: &baremetalv1.RepaveImage{Image: image}}}
}

func netboot(mode string) *baremetalv1.Step {
	return &baremetalv1.Step{Name: "netboot",
		Kind: &baremetalv1.Step_Netboot{Netboot: &baremetalv1.SetNetboot{Mode: mode}}}
}

func of(steps ...*baremetalv1.Step) *baremetalv1.Plan {
	return &baremetalv1.Plan{PlanId: "p", Steps: steps}
}

func with(s *baremetalv1.Step, change func(*baremetalv1.Step)) *baremetalv1.Plan {
	change(s)
	return of(s)
}

func TestValidateNamesTheField(t *testing.T) {
	many := make([]*baremetalv1.Step, 101)
	for i := range many {
		many[i] = reboot(fmt.Sprintf("s%d", i))
	}
	unknown := reboot("x")
	unknown.ProtoReflect().SetUnknown([]byte{0xf8, 0x7f, 0x01}) // field 2047, as of a newer server
	for name, c := range map[string]struct {
		plan          *baremetalv1.Plan
		reason, field string
	}{
		"no steps":     {of(), "INVALID_FIELD", "plan.steps"},
		"too many":     {of(many...), "INVALID_FIELD", "plan.steps"},
		"no kind":      {of(&baremetalv1.Step{Name: "x"}), "UNKNOWN_STEP_KIND", "plan.steps[0].kind"},
		"unknown kind": {of(reboot("a"), unknown), "UNKNOWN_STEP_KIND", "plan.steps[1].kind"},
		"set_phase": {
			of(&baremetalv1.Step{Name: "x", Kind: &baremetalv1.Step_SetPhase{SetPhase: &baremetalv1.SetPhase{}}}),
			"UNKNOWN_STEP_KIND", "plan.steps[0].kind"},
		"same names": {of(reboot("a"), reboot("b"), reboot("a")), "DUPLICATE_STEP_NAME", "plan.steps[2].name"},
		"no name":    {of(reboot("")), "INVALID_FIELD", "plan.steps[0].name"},
		"capitals":   {of(reboot("Reboot")), "INVALID_FIELD", "plan.steps[0].name"},
		"long name":  {of(reboot(strings.Repeat("a", 64))), "INVALID_FIELD", "plan.steps[0].name"},
		"negative time": {with(reboot("a"), func(s *baremetalv1.Step) { s.TimeoutSeconds = -1 }), "INVALID_FIELD",
			"plan.steps[0].timeout_seconds"},
		"too long": {with(reboot("a"), func(s *baremetalv1.Step) { s.TimeoutSeconds = 86401 }), "INVALID_FIELD",
			"plan.steps[0].timeout_seconds"},
		"retries": {with(reboot("a"), func(s *baremetalv1.Step) { s.MaxRetries = 101 }), "INVALID_FIELD",
			"plan.steps[0].max_retries"},
		"minus two": {with(reboot("a"), func(s *baremetalv1.Step) { s.MaxRetries = -2 }), "INVALID_FIELD",
			"plan.steps[0].max_retries"},
		"mode of reboot": {with(reboot("a"), func(s *baremetalv1.Step) { s.GetReboot().Mode = "rough" }), "INVALID_FIELD",
			"plan.steps[0].reboot.mode"},
		"netboot mode": {of(netboot("TAPE")), "INVALID_FIELD", "plan.steps[0].netboot.mode"},
	} {
		err := plan.Validate(c.plan)
		var f *failure.Error
		if !errors.As(err, &f) || f.Reason != c.reason || len(f.Fields) != 1 || f.Fields[0].Path != c.field {
			t.Errorf("%s: %v, want %s of %s", name, err, c.reason, c.field)
		}
	}
}

func TestValidPlans(t *testing.T) {
	for _, p := range []*baremetalv1.Plan{
		of(reboot("a"), reboot("b-2")), of(netboot("PXE"), repave("")),
		with(reboot(strings.Repeat("a", 63)), func(s *baremetalv1.Step) { s.TimeoutSeconds, s.MaxRetries = 86400, 100 }),
		with(reboot("a"), func(s *baremetalv1.Step) { s.MaxRetries = -1; s.GetReboot().Mode = "bmc" }),
	} {
		if err := plan.Validate(p); err != nil {
			t.Error(err)
		}
	}
}

// oneOfEach returns a step of every kind that the API knows.
func oneOfEach() map[string]*baremetalv1.Step {
	out := map[string]*baremetalv1.Step{}
	kinds := (&baremetalv1.Step{}).ProtoReflect().Descriptor().Oneofs().ByName("kind").Fields()
	for i := range kinds.Len() {
		s := &baremetalv1.Step{Name: "x"}
		s.ProtoReflect().Mutable(kinds.Get(i)).Message()
		out[string(kinds.Get(i).Name())] = s
	}
	return out
}

func TestDestructive(t *testing.T) {
	for k, s := range oneOfEach() {
		want := slices.Contains([]string{"repave", "erase", "rma", "reset_devices"}, k)
		if got := plan.Destructive(of(reboot("a"), s)); got != want {
			t.Errorf("%s: destructive %t", k, got)
		}
	}
	// A phase that is not set is no maintenance, and an action of a provider may be any.
	interrupts := []string{"reboot", "netboot", "drain", "provider_action", "test_hardware"}
	for name, s := range oneOfEach() {
		if got := plan.HarmOf(of(s)); (got == kind.Interrupts) != slices.Contains(interrupts, name) {
			t.Errorf("%s: %s", name, got)
		}
	}
	each := oneOfEach()
	each["ssh"].GetSsh().Destructive = true
	if !plan.Destructive(of(each["ssh"])) {
		t.Error("an SSH command that is marked so is not destructive")
	}
	for action, want := range map[string]bool{"deploy": true, "release": true, "erase": true, "recover_deploy": true,
		"delete": true, "power_on": false} {
		each["provider_action"].GetProviderAction().Action = action
		if plan.Destructive(of(each["provider_action"])) != want {
			t.Errorf("provider action %s: destructive %t", action, !want)
		}
	}
}

func TestEveryKindHasLimitsAndAnAnswer(t *testing.T) {
	wired := 0
	for name, s := range oneOfEach() {
		if string(kind.OfStep(s)) != name {
			t.Errorf("OfStep returns %q for %s", kind.OfStep(s), name)
		}
		if d, ok := plan.BuiltInDefaults()[name]; !ok || d.Timeout <= 0 || d.Timeout > 24*time.Hour {
			t.Errorf("%s has the default %v", name, d)
		}
		runs := plan.NotWired(of(s)) == nil
		if runs != kind.Of(kind.Kind(name)).Runs {
			t.Errorf("%s runs in any plan: %t", name, runs)
		}
		if runs {
			wired++
		} else if got := plan.NotWired(of(reboot("a"), s)); got != s {
			t.Errorf("the step that is not wired is %v", got)
		}
	}
	if wired < 16 {
		t.Errorf("%d kinds are wired", wired)
	}
}

func filled(t *testing.T, p *baremetalv1.Plan, in kind.Inputs, d plan.Defaults) []plan.Filled {
	t.Helper()
	before := proto.Clone(p)
	out, err := plan.Fill(p, in, d)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(before, p) {
		t.Error("filling changed the plan")
	}
	return out
}

func TestLimits(t *testing.T) {
	d := plan.Defaults{"reboot": {Timeout: time.Minute, Retries: 3}}
	for _, c := range []struct {
		seconds, retries, asked int32
		timeout                 time.Duration
		want                    int
	}{
		{0, 0, 0, time.Minute, 3}, // inherited
		{10, 5, 0, 10 * time.Second, 5},
		{0, -1, 0, time.Minute, 0}, // none
		{10, 0, 20, 20 * time.Second, 3},
	} {
		s := reboot("a")
		s.TimeoutSeconds, s.MaxRetries = c.seconds, c.retries
		f := filled(t, of(s), kind.Inputs{TimeoutSeconds: c.asked}, d)[0]
		if f.Timeout != c.timeout || f.Retries != c.want || f.Kind != "reboot" {
			t.Errorf("%+v gives %v and %d retries", c, f.Timeout, f.Retries)
		}
	}
	merged := plan.BuiltInDefaults().Merge(d)
	if merged["reboot"].Retries != 3 || merged["repave"] != plan.BuiltInDefaults()["repave"] ||
		plan.BuiltInDefaults()["reboot"].Retries == 3 {
		t.Error("merged wrongly")
	}
}

// Only the first boot of a new system has more time. The time of a request, and of a client's plan, holds.
func TestANewSystemHasTimeForItsFirstBoot(t *testing.T) {
	open := of(reboot("before"), repave("img-plan"), reboot("first"))
	own := proto.Clone(open).(*baremetalv1.Plan)
	own.Steps[2].TimeoutSeconds = 300
	builtIn := proto.Clone(own).(*baremetalv1.Plan)
	builtIn.BuiltIn = true
	for name, c := range map[string]struct {
		plan          *baremetalv1.Plan
		in            kind.Inputs
		before, first time.Duration
	}{
		"with the agent":              {open, kind.Inputs{}, 5 * time.Minute, plan.FirstBoot},
		"as the client's plan is":     {own, kind.Inputs{}, 5 * time.Minute, 5 * time.Minute},
		"by a plan that is built in":  {builtIn, kind.Inputs{}, 5 * time.Minute, plan.FirstBoot},
		"without":                     {open, kind.Inputs{Agentless: true}, 5 * time.Minute, plan.FirstBootWithoutAgent},
		"without, by a client's plan": {own, kind.Inputs{Agentless: true}, 5 * time.Minute, plan.FirstBootWithoutAgent},
		"as the request is":           {open, kind.Inputs{Agentless: true, TimeoutSeconds: 60}, time.Minute, time.Minute},
	} {
		f := filled(t, c.plan, c.in, plan.BuiltInDefaults())
		if f[0].Timeout != c.before || f[2].Timeout != c.first {
			t.Errorf("%s: %v before, %v for the first boot", name, f[0].Timeout, f[2].Timeout)
		}
	}
}

// The configuration's limits of a kind hold for the plans that every server has, too, though they name their limits.
func TestConfiguredLimitsHoldForBuiltInPlans(t *testing.T) {
	configured := plan.BuiltInDefaults().Merge(plan.Defaults{"reboot": {Timeout: 20 * time.Minute, Retries: 5}})
	for _, id := range []string{"reboot", "repave"} {
		steps := filled(t, builtIn(t, id), kind.Inputs{ImageRef: "img"}, configured)
		if last := steps[len(steps)-1]; last.Timeout != 20*time.Minute || last.Retries != 5 {
			t.Errorf("%s: %v and %d retries", id, last.Timeout, last.Retries)
		}
	}
	own := of(reboot("own"))
	own.Steps[0].TimeoutSeconds = 300
	if f := filled(t, own, kind.Inputs{}, configured)[0]; f.Timeout != 5*time.Minute || f.Retries != 5 {
		t.Errorf("a client's plan: %v and %d retries", f.Timeout, f.Retries)
	}
}

func TestFill(t *testing.T) {
	config := &baremetalv1.NetReconfig{ConfirmTimeoutSeconds: 7}
	in := kind.Inputs{ImageRef: "img-asked", RebootMode: "force", NetbootMode: "HTTP", Config: config}
	net := func(n *baremetalv1.NetReconfig) *baremetalv1.Step {
		return &baremetalv1.Step{Name: "net", Kind: &baremetalv1.Step_Net{Net: n}}
	}
	for name, c := range map[string]struct {
		step *baremetalv1.Step
		in   kind.Inputs
		got  func(*baremetalv1.Step) string
		want string
	}{
		"image of the plan": {repave("img-plan"), in,
			func(s *baremetalv1.Step) string { return s.GetRepave().GetImage() }, "img-plan"},
		"image that was asked": {repave(""), in, func(s *baremetalv1.Step) string { return s.GetRepave().GetImage() },
			"img-asked"},
		"reboot mode asked": {reboot("a"), in, func(s *baremetalv1.Step) string { return s.GetReboot().GetMode() },
			"force"},
		"reboot mode by itself": {reboot("a"), kind.Inputs{},
			func(s *baremetalv1.Step) string { return s.GetReboot().GetMode() }, "graceful"},
		"netboot mode of plan": {netboot("DISK"), in, func(s *baremetalv1.Step) string { return s.GetNetboot().GetMode() },
			"DISK"},
		"netboot mode asked": {netboot(""), in, func(s *baremetalv1.Step) string { return s.GetNetboot().GetMode() }, "HTTP"},
		"netboot by itself": {netboot(""), kind.Inputs{},
			func(s *baremetalv1.Step) string { return s.GetNetboot().GetMode() }, "PXE"},
		"configuration asked": {net(&baremetalv1.NetReconfig{}), in, func(s *baremetalv1.Step) string {
			return fmt.Sprint(s.GetNet().GetConfirmTimeoutSeconds())
		}, "7"},
		"configuration of the plan": {net(&baremetalv1.NetReconfig{ConfirmTimeoutSeconds: 9}), in,
			func(s *baremetalv1.Step) string {
				return fmt.Sprint(s.GetNet().GetConfirmTimeoutSeconds())
			}, "9"},
	} {
		if got := c.got(filled(t, of(c.step), c.in, plan.BuiltInDefaults())[0].Step); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	_, err := plan.Fill(of(reboot("a"), repave("")), kind.Inputs{}, plan.BuiltInDefaults())
	var f *failure.Error
	if !errors.As(err, &f) || f.Reason != "MACHINE_HAS_NO_IMAGE" {
		t.Errorf("without an image: %v", err)
	}
}

func TestDigestIsOfTheContent(t *testing.T) {
	digest := func(p *baremetalv1.Plan) []byte {
		t.Helper()
		b, err := plan.Digest(p)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	p := of(reboot("a"))
	same := of(reboot("a"))
	same.Used, same.BuiltIn = true, true
	if !bytes.Equal(digest(p), digest(same)) || !same.Used {
		t.Error("what the server adds changes the digest, or the digest changes the plan")
	}
	for _, other := range []*baremetalv1.Plan{of(reboot("b")), of(reboot("a"), reboot("b")), of(repave("x"))} {
		if bytes.Equal(digest(p), digest(other)) {
			t.Errorf("%v has the same digest", other)
		}
	}
}

func TestBuiltInPlans(t *testing.T) {
	byID := map[string]*baremetalv1.Plan{}
	for _, p := range plan.BuiltIn() {
		if byID[p.GetPlanId()] != nil || !p.GetBuiltIn() || p.GetDisplayName() == "" {
			t.Errorf("%v", p)
		}
		byID[p.GetPlanId()] = p
		own := plan.Housekeeping(p) || plan.OfWorkflow(p)
		if err := plan.Validate(p); (err != nil) != own {
			t.Errorf("%s: %v", p.GetPlanId(), err) // only these may hold steps of the controller's own
		}
	}
	for _, op := range fleet.OperationTypes() {
		id := fleet.DefaultPlan(op)
		if id == "" {
			continue
		}
		p := byID[id]
		if p == nil {
			t.Errorf("%s runs plan %s, which is not built in", op, id)
			continue
		}
		if s := plan.NotWired(p); s != nil {
			t.Errorf("%s runs plan %s, whose step %s is not built", op, id, s.GetName())
		}
		if plan.Destructive(p) && fleet.Admit(fleet.Facts{Phase: fleet.Ready}, op, false) == nil {
			t.Errorf("%s loses data and may start in READY", op)
		}
	}
	// The limits of the sample plan are the defaults of their kinds.
	for _, p := range byID {
		for _, s := range p.GetSteps() {
			d := plan.BuiltInDefaults()[string(kind.OfStep(s))]
			if s.GetWorkflowStage() != nil || kind.OfStep(s) == "provider_action" {
				continue // how long a stage waits is its own matter
			}
			if s.GetTimeoutSeconds() != 0 && time.Duration(s.GetTimeoutSeconds())*time.Second != d.Timeout {
				t.Errorf("%s/%s runs %d s, its kind %v", p.GetPlanId(), s.GetName(), s.GetTimeoutSeconds(), d.Timeout)
			}
		}
	}
}
