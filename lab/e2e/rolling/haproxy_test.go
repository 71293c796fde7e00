//go:build rolling

package rolling

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/process"
)

// The addresses of deploy/high-availability, and loopback ones that stand for them.
var onLoopback = strings.NewReplacer("192.0.2.10", "127.77.0.10", "192.0.2.11", "127.77.0.11", "192.0.2.12",
	"127.77.0.12", "192.0.2.13", "127.77.0.13",
	"maxconn 100000", "maxconn 2000")

// TestRollingHAProxy restarts and kills three controllers behind HAProxy with the configuration that deploy/ has.
func TestRollingHAProxy(t *testing.T) {
	path, err := exec.LookPath("haproxy")
	if err != nil {
		path = "/usr/sbin/haproxy"
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "high-availability", "haproxy.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	if err := os.WriteFile(file, []byte(onLoopback.Replace(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	var output testkit.Buffer
	proxy, err := process.Start(process.Config{Path: path, Args: []string{"-db", "-f", file}, Output: &output})
	if err != nil {
		t.Fatalf("start HAProxy (Debian package haproxy): %v", err)
	}
	t.Cleanup(func() {
		if err := proxy.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(output.String())
		}
	})
	testkit.Eventually(t, rig.Soon, func() bool {
		c, err := net.Dial("tcp", "127.77.0.10:50051")
		if err != nil {
			return false
		}
		c.Close()
		return true
	}, "HAProxy does not listen")
	r := harness.NewTrioBehind(t, "127.77.0.10", [3]string{"127.77.0.11", "127.77.0.12", "127.77.0.13"})
	l := startTraffic(t, r, 12)
	<-time.After(5 * time.Second)
	l.enter("rolling restart")
	for i := range r.Controllers {
		t.Logf("controller %d has stopped in %v", i, milli(r.Restart(i)))
		<-time.After(3 * time.Second)
	}
	for i := range r.Controllers {
		l.enter("kill -9")
		l.killed(i, r.Kill(i))
		<-time.After(5 * time.Second)
		r.Controllers[i].Start("")
		<-time.After(2 * time.Second)
	}
	l.judge(promised)
}
