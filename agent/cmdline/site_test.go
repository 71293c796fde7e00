package cmdline_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/agenttest"
	"github.com/ingot-metal/ingot/agent/site/sitetest"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestASiteServesAsAnotherUser starts a site agent as root with user nobody: it serves all that a segment needs, from
// ports under 1024 too, and has no other rights.
func TestASiteServesAsAnotherUser(t *testing.T) {
	if !sitetest.InNamespace(t) {
		return
	}
	sitetest.Bridge(t, "br0", "10.7.0.1/24")
	c := agenttest.New(t, agenttest.Hooks{})
	c.Role = "site"
	c.SetDocument(&fleetv1.SiteDocument{Revision: 4, Segments: []*fleetv1.Segment{{
		Name: "rack1", Interface: "br0", Address: "10.7.0.1/24", PoolStart: "10.7.0.50", PoolEnd: "10.7.0.59",
		LeaseSeconds: 600,
	}}})
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} { // the user must get there
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	token, file, stateDir := filepath.Join(dir, "token"), filepath.Join(dir, "agent.yaml"), filepath.Join(dir, "state")
	text := fmt.Sprintf("role: site\nstate_dir: %s\ntoken_file: %s\nsite: {interfaces: [br0], user: nobody}\n", stateDir,
		token)
	for name, content := range map[string]string{token: c.Bundle(), file: text} {
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := launch(t, "", "run", "--config", file)
	c.Wait("the segment to be up", func() bool {
		for _, s := range c.Syncs() {
			for _, o := range s.GetSegments() {
				if o.GetSegment() == "rack1" && o.GetState() == "up" {
					return true
				}
			}
		}
		return false
	})
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	const bindAndRaw = "0000000000002400" // bits 10 and 13
	for _, want := range []string{"Uid:\t65534\t65534\t65534\t65534\n", "CapEff:\t" + bindAndRaw, "CapPrm:\t" + bindAndRaw,
		"CapBnd:\t" + bindAndRaw, "NoNewPrivs:\t1"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("no %q in\n%s", want, status)
		}
	}
	m := sitetest.NewMachine(t, "br0", "52:54:00:00:00:01")
	m.Run("busybox udhcpc -i eth0 -n -q -f -t 10 -T 1 -s /bin/true")
	testkit.Eventually(t, 20*time.Second, func() bool {
		resp, err := http.Get("http://10.7.0.1:8080/boot/auto.ipxe?mac=52:54:00:00:00:01")
		return err == nil && resp.Body.Close() == nil && resp.StatusCode == http.StatusOK
	}, "no boot server")
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	<-p.done
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("it ends with %d", code)
	}
}
