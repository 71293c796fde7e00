package plan_test

import (
	"errors"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/internal/failure"
)

func sshStep(name, command string, args ...string) *baremetalv1.Step {
	return &baremetalv1.Step{Name: name,
		Kind: &baremetalv1.Step_Ssh{Ssh: &baremetalv1.SshCommand{Command: command, Args: args}}}
}

func rma(name, action string) *baremetalv1.Step {
	return &baremetalv1.Step{Name: name, Kind: &baremetalv1.Step_Rma{Rma: &baremetalv1.RmaAction{Action: action}}}
}

func TestPlansOfScriptsAndReturns(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, c := range map[string]struct {
		plan  *baremetalv1.Plan
		field string
	}{
		"a script":              {of(sshStep("a", "fix-1.sh", "; rm -rf /", "", "\n", long, long)), ""},
		"no script":             {of(sshStep("a", "")), "plan.steps[0].ssh.command"},
		"a command line":        {of(sshStep("a", "rm -rf /")), "plan.steps[0].ssh.command"},
		"a NUL":                 {of(sshStep("a", "fix", "a", "b\x00")), "plan.steps[0].ssh.args[1]"},
		"a long argument":       {of(sshStep("a", "fix", long+"x")), "plan.steps[0].ssh.args[0]"},
		"long arguments":        {of(sshStep("a", "fix", long, long, long)), "plan.steps[0].ssh.args[2]"},
		"many arguments":        {of(sshStep("a", "fix", make([]string, 1001)...)), "plan.steps[0].ssh.args"},
		"flag at the end":       {of(reboot("a"), rma("b", "flag")), ""},
		"flag by default":       {of(rma("a", "")), ""},
		"work after the flag":   {of(rma("a", "flag"), reboot("b")), "plan.steps[0].rma.action"},
		"return at the start":   {of(rma("a", "return"), reboot("b")), ""},
		"work before a return":  {of(reboot("a"), rma("b", "return")), "plan.steps[1].rma.action"},
		"there and back":        {of(rma("a", "return"), reboot("b"), rma("c", "flag")), ""},
		"an action that is not": {of(rma("a", "sell")), "plan.steps[0].rma.action"},
	} {
		err := plan.Validate(c.plan)
		var f *failure.Error
		if got := errors.As(err, &f); got != (c.field != "") || got && f.Fields[0].Path != c.field {
			t.Errorf("%s: %v, want a fault of %q", name, err, c.field)
		}
	}
	if !plan.ReturnsFromRMA(of(rma("a", "return"), reboot("b"))) || plan.ReturnsFromRMA(of(rma("a", "flag"))) ||
		plan.ReturnsFromRMA(of(reboot("a"))) {
		t.Error("what returns from an RMA")
	}
}
