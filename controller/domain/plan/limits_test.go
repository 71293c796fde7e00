package plan_test

import (
	"fmt"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/plan"
)

// The largest plan, the most arguments and the longest ones are still taken.
func TestLimitsAreInclusive(t *testing.T) {
	steps := make([]*baremetalv1.Step, 100)
	for i := range steps {
		steps[i] = reboot(fmt.Sprintf("s%d", i))
	}
	long := strings.Repeat("x", 100<<10)
	for name, p := range map[string]*baremetalv1.Plan{
		"100 steps":                 of(steps...),
		"1000 arguments":            of(sshStep("a", "fix", make([]string, 1000)...)),
		"an argument of 100 KiB":    of(sshStep("a", "fix", long)),
		"arguments of 256 KiB":      of(sshStep("a", "fix", long, long, strings.Repeat("x", 56<<10))),
		"a step of a day":           with(reboot("a"), func(s *baremetalv1.Step) { s.TimeoutSeconds = 86400 }),
		"a step of a hundred tries": with(reboot("a"), func(s *baremetalv1.Step) { s.MaxRetries = 100 }),
	} {
		if err := plan.Validate(p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
