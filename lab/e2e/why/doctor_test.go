package why

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestDoctorOfAnInstallation brings about faults of a whole installation, and takes their remedies.
func TestDoctorOfAnInstallation(t *testing.T) {
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{Site: true})
	m.WaitConnected()
	says := func(code int, lines ...string) {
		t.Helper()
		var got int
		var out string
		// An agent's end is known a moment later.
		testkit.Eventually(t, 20*time.Second, func() bool {
			got, out = c.Ingot("doctor")
			return got == code && !slices.ContainsFunc(lines, func(line string) bool { return !strings.Contains(out, line) })
		}, "%v", said(func() string { return fmt.Sprintf("exit code %d, want %d with %q:\n%s", got, code, lines, out) }))
	}
	says(0, "ok    controller", "the listener's certificate is valid until", "ok    sites", "ok    agents", "ok    bmc",
		"ok    tokens", "ok    racks", "ok    webhooks")

	if err := m.Stop(); err != nil {
		t.Fatal(err)
	}
	says(5, "fail  agents       the agent of site", "ingot-agent doctor; systemctl status ingot-agent")
	m.Start()
	m.WaitConnected()
	says(0, "ok    agents")

	if code, out := c.Ingot("server", "freeze", "--comment", "power is being worked on"); code != 0 {
		t.Fatalf("freeze: %d %s", code, out)
	}
	says(0, "warn  freeze", "ingot server thaw")
	if code, out := c.Ingot("server", "thaw"); code != 0 {
		t.Fatalf("thaw: %d %s", code, out)
	}
	harness.Must(t, c.Admin().CreateAPIToken, &baremetalv1.CreateAPITokenRequest{Name: "ci", Scope: "read",
		Lifetime: durationpb.New(24 * time.Hour)})
	says(0, "warn  tokens       ci ends on", "ingot token create ci --scope read")

	// A machine that a role by rack holds by its label alone was not the role's before the label counted.
	c.Register(&baremetalv1.Machine{MachineId: "labelled", Spec: &baremetalv1.MachineSpec{Provider: "fake"},
		Labels: map[string]string{"rack": "r7"}})
	if code, out := c.Ingot("role", "grant", "operator", "--group", "ops", "--select", "rack=r7"); code != 0 {
		t.Fatalf("grant: %d %s", code, out)
	}
	says(0, "warn  racks", `"rack=r7" holds 1 machines by the label rack alone: labelled`, "set spec.rack")

	harness.Must(t, c.Admin().SetSite, &baremetalv1.SetSiteRequest{Site: "r42",
		Segments: []*baremetalv1.Segment{{Name: "s", Interface: "eth1", Address: "10.42.0.1/24", PoolStart: "10.42.0.10",
			PoolEnd: "10.42.0.20"}}})
	says(5, "fail  sites        r42 has segments and no agent", "ingot token issue --role site --site r42",
		"fail  installer", "apt install ingot-installer")
	c.Stop()
	says(5, "fail  controller", "ingot-controller doctor")
}

// said is a text that is made when it is printed.
type said func() string

func (s said) String() string { return s() }
