package why

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// byHand are the beginnings of actions that are no commands of ours.
var byHand = []string{"look at ", "switch ", "reset the BMC", "put the public key", "free space below", "kubectl ",
	"kubeadm "}

// follows are commands that show something until it ends, and so are given a time.
var follows = []string{"watch", "logs"}

// takeTime is how long one command may take. Those that start work return when it is accepted.
const takeTime = 45 * time.Second

// attemptTime is how long the attempt of a workflow that goes on is watched.
const attemptTime = 10 * time.Second

// take runs an offer as it stands, and returns its failure.
func (s subject) take(t *testing.T, o offer) string {
	t.Helper()
	line, _, _ := strings.Cut(o.command, "   (")
	if strings.HasPrefix(line, "ingot-agent ") {
		return s.atAgent(t, strings.Fields(line)[1:])
	}
	if !strings.HasPrefix(line, "ingot ") {
		if !slices.ContainsFunc(byHand, func(p string) bool { return strings.HasPrefix(line, p) }) {
			t.Errorf("%q is neither a command of ours nor something that is known to be done by hand", o.command)
		}
		return "by hand"
	}
	args, stdin := s.fill(t, strings.TrimPrefix(line, "ingot "))
	good := []int{0}
	switch {
	case slices.Contains(follows, args[0]):
		args = append(args, "--timeout", "2s")
		good = []int{0, 5, 6, 9}
	case s.starts(args) && !slices.Contains(args, "--dry-run"):
		args = append(args, "--no-wait")
	}
	ctx, cancel := context.WithTimeout(t.Context(), takeTime)
	defer cancel()
	client := s.r.Client
	if strings.HasPrefix(line, "ingot rollout approve ") {
		client = s.anotherAdmin(t)
	}
	code, out := client.IngotWith(ctx, stdin, args...)
	if !slices.Contains(good, code) {
		t.Errorf("rule %s, %s offers %q: ingot %s: exit code %d\n%s", o.rule, o.by, o.command, strings.Join(args, " "), code,
			out)
		return "REFUSED"
	}
	if strings.HasPrefix(line, "ingot workflow act ") && !slices.Contains(args, "--dry-run") {
		return s.goesOn(t, args[2])
	}
	return "accepted"
}

// refusals are reasons for which the controller refuses grants: work that was accepted must not end with one.
var refusals = []string{"MACHINE_QUARANTINED", "MACHINE_BLOCKED", "FLEET_FROZEN", "COMMAND_UNRESOLVED", "GRANT_REFUSED",
	"BUDGET_REQUIRED"}

// goesOn waits for the end of a workflow's attempt, and holds that the attempt was not accepted for nothing.
func (s subject) goesOn(t *testing.T, workflow string) string {
	t.Helper()
	var w *baremetalv1.Workflow
	limit, poll := time.After(attemptTime), time.NewTicker(100*time.Millisecond)
	defer poll.Stop()
	for watched := false; !watched; {
		w = harness.Must(t, s.r.Workflows().GetWorkflow, &baremetalv1.GetWorkflowRequest{WorkflowId: workflow})
		if rig.FailedState(w) || w.GetEndedAt() != nil {
			break
		}
		select {
		case <-limit:
			watched = true // it is at work, and was not refused
		case <-poll.C:
		}
	}
	if slices.Contains(refusals, w.GetReason()) {
		t.Errorf("the workflow was told to go on, and is %s at %s for %s: %s", w.GetState(), w.GetCurrentStage(),
			w.GetReason(), w.GetMessage())
		return "REFUSED LATER"
	}
	return "accepted"
}

// anotherAdmin is a client other than the one that has created the rollout.
func (s subject) anotherAdmin(t *testing.T) *harness.Client {
	t.Helper()
	secret, err := auth.AddToken(s.r.TokensFile(), ids.New("admin"), access.ScopeAdmin)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.r.Controller().Reload(); err != nil {
		t.Fatal(err)
	}
	return s.r.WithToken(secret)
}

// startsWork remembers it of each command that was asked about.
var startsWork sync.Map

// starts reports whether a command starts work, and so can return before that ends.
func (s subject) starts(args []string) bool {
	words := slices.IndexFunc(args, func(a string) bool {
		return strings.ContainsAny(a, "-./:0123456789") && a != "exit-maintenance" && a != "enter-maintenance"
	})
	if words < 0 {
		words = len(args)
	}
	verb := strings.Join(args[:words], " ")
	known, ok := startsWork.Load(verb)
	if !ok {
		_, help := s.r.Ingot(append(slices.Clone(args[:words]), "--help")...)
		known, _ = startsWork.LoadOrStore(verb, strings.Contains(help, "--no-wait"))
	}
	return known.(bool)
}

// atAgent runs a command of the agent, at the machine of which the answer speaks.
func (s subject) atAgent(t *testing.T, args []string) string {
	t.Helper()
	if args[0] != "unlock" || s.of == nil {
		args = append(args, "--help") // what it would find out is about the computer that this test runs on
	}
	if out, err := agentCommand(t, s.of, args...); err != nil {
		t.Errorf("ingot-agent %s: %v\n%s", strings.Join(args, " "), err, out)
		return "REFUSED"
	}
	return "accepted"
}

// placeholder is a word in capitals that a person replaces.
var placeholder = regexp.MustCompile(`^[A-Z][A-Z-]{2,}(\.yaml|:[A-Z0-9]+)?$|…`)

// fill replaces the placeholders as an operator would, and returns the input of prompts.
func (s subject) fill(t *testing.T, line string) (args []string, stdin string) {
	t.Helper()
	words := strings.Fields(line)
	for i, w := range words {
		if !placeholder.MatchString(w) {
			continue
		}
		before := ""
		if i > 0 {
			before = words[i-1]
		}
		words[i] = s.value(t, words, before, w)
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "" })
	switch {
	case strings.HasPrefix(line, "bmc credentials set"):
		stdin = "right\n"
	case strings.HasPrefix(line, "reconfigure"):
		words = append(words, "--hostname", "filled")
	case strings.Contains(line, "restart-clean"), strings.Contains(line, " deprovisioning"):
		words = append(words, "--yes") // an operator answers the question
	}
	return words, stdin
}

// value is what an operator writes for a placeholder after a flag or a word.
func (s subject) value(t *testing.T, words []string, before, w string) string {
	t.Helper()
	name := "filled-" + ids.New("x")
	switch {
	case w == "…":
		return ""
	case w == "HOST":
		return "192.0.2.9"
	case w == "HOST:22":
		return "192.0.2.9:22"
	case w == "USER":
		return "admin"
	case w == "VERDICT":
		return "did-not-happen"
	case w == "HOW-YOU-KNOW":
		return "stood-beside-it"
	case w == "MAC", w == "MAC,…":
		return macOf(name)
	case w == "SERIAL":
		return "S-" + name
	case w == "NEW-ID":
		return ids.New(ids.Machine)
	case w == "URL":
		return "http://127.0.0.1:1/MAAS"
	case w == "SHA256:FINGERPRINT":
		return "SHA256:" + strings.Repeat("A", 43)
	case before == "serial=SERIAL" || w == "serial=SERIAL":
		return "serial=ABC"
	case w == "PLAN":
		harness.Must(t, baremetalv1.NewPlanServiceClient(s.r.Conn()).CreatePlan,
			&baremetalv1.CreatePlanRequest{Plan: &baremetalv1.Plan{
				PlanId: name,
				Steps: []*baremetalv1.Step{
					{Name: "write", Kind: &baremetalv1.Step_Repave{Repave: &baremetalv1.RepaveImage{Image: s.image(t)}}}},
			}})
		return name
	case w == "NAME" && before == "--bmc-credentials":
		harness.Must(t, s.r.Admin().SetBMCCredentials, &baremetalv1.SetBMCCredentialsRequest{CredentialsRef: name,
			Username: "admin", Password: "right", AllowedEndpoints: []string{"192.0.2.9"}})
		return name
	case w == "FILE" && slices.Contains(words, "maas"):
		return s.file(t, maastest.APIKey)
	case w == "IMAGE":
		return s.image(t)
	case w == "RMA":
		return w // it is the flag's name
	case w == "NAME" && words[0] == "image":
		return name
	case w == "FILE" && slices.Contains(words, "installer-kernel"):
		return s.file(t, kernelFile())
	case w == "FILE" && words[0] == "image":
		return s.file(t, string(rig.WholeDisk(1<<20)))
	}
	t.Errorf("the placeholder %s of %q has no value here", w, strings.Join(words, " "))
	return w
}

// image is a system of the catalogue. Simulated machines take any name where there is none.
func (s subject) image(t *testing.T) string {
	t.Helper()
	all := harness.Must(t, s.r.Admin().ListImages, &baremetalv1.ListImagesRequest{Filter: "kind=os"}).GetImages()
	if len(all) == 0 {
		return "debian-12"
	}
	return all[0].GetImageRef()
}

func (s subject) file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// agentCommand runs a command of the agent's program at a machine.
func agentCommand(t *testing.T, m *harness.Machine, args ...string) (string, error) {
	t.Helper()
	if m != nil && !slices.Contains(args, "--help") {
		args = append(args, "--state-dir", m.StateDir)
	}
	out, err := exec.CommandContext(t.Context(), harness.Build(t).Agent, args...).CombinedOutput()
	return string(out), err
}

// kernelFile returns a file with the header of the x86 boot protocol, which is what a kernel is known by.
func kernelFile() string {
	b := make([]byte, 4096)
	b[0x1fe], b[0x1ff] = 0x55, 0xaa
	copy(b[0x202:], "HdrS")
	return string(b)
}
