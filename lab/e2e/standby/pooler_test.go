package standby

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/process"
)

// TestBehindPgBouncer runs a controller behind PgBouncer as its manual has it, without ignore_startup_parameters. A
// pool in session mode works, and any other is refused by name.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	t.Run("session", func(t *testing.T) {
		t.Parallel()
		c := harness.NewControllerProcessOn(t, pgBouncer(t, "session"))
		c.Start("")
		m := c.NewMachine(t, harness.MachineOptions{})
		m.WaitConnected()
		rig.Maintenance(t, c.Client, m.ID)
		op := harness.Must(t, c.Machines().RebootMachine, &baremetalv1.RebootMachineRequest{MachineId: m.ID,
			RequestId: "behind"})
		rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	})
	for _, mode := range []string{"transaction", "statement"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			c := harness.NewControllerProcessOn(t, pgBouncer(t, mode))
			c.Launch("")
			testkit.Eventually(t, rig.Soon, func() bool {
				_, answer := c.Readiness()
				return strings.Contains(answer, "Use a pool in session mode")
			}, "the controller does not refuse its pool")
		})
	}
}

// pgBouncer starts PgBouncer before a new database, and returns the URL of the database through it.
func pgBouncer(t *testing.T, mode string) string {
	t.Helper()
	behind, err := url.Parse(testkit.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	path, err := exec.LookPath("pgbouncer")
	if err != nil {
		path = "/usr/sbin/pgbouncer"
	}
	host, port, name := behind.Hostname(), behind.Port(), strings.TrimPrefix(behind.Path, "/")
	if dir := behind.Query().Get("host"); dir != "" {
		host = dir
	}
	if p := behind.Query().Get("port"); p != "" {
		port = p
	}
	own := testkit.FreePort(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf("[databases]\n%s = host=%s port=%s dbname=%s user=%s\n"+
		"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %s\nunix_socket_dir =\nauth_type = any\n"+
		"pool_mode = %s\nmax_client_conn = 100\ndefault_pool_size = 40\n", name, host, port, name, behind.User.Username(), own,
		mode)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{file}
	if os.Geteuid() == 0 { // PgBouncer refuses to run as root; the server of the tests runs as postgres then
		args = append([]string{"-u", "postgres"}, args...)
	}
	var output testkit.Buffer
	p, err := process.Start(process.Config{Path: path, Args: args, Output: &output})
	if err != nil {
		t.Fatalf("start PgBouncer (Debian package pgbouncer): %v", err)
	}
	t.Cleanup(func() {
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(output.String())
		}
	})
	address := net.JoinHostPort("127.0.0.1", own)
	testkit.Eventually(t, rig.Soon, func() bool {
		c, err := net.Dial("tcp", address)
		if err != nil {
			select {
			case <-p.Gone():
				t.Fatal("PgBouncer ended")
			default:
			}
			return false
		}
		c.Close()
		return true
	}, "PgBouncer does not listen")
	return (&url.URL{Scheme: "postgres", User: url.User(behind.User.Username()), Host: address, Path: "/" + name}).String()
}
