//go:build clients

package clients

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ingot-metal/ingot/lab/harness"
)

// TestPythonClient runs the tests of integrations/python.
func TestPythonClient(t *testing.T) {
	s := start(t)
	out := t.TempDir()
	at := filepath.Join("..", "..", "..", "integrations", "python")
	if made, err := exec.Command(filepath.Join(at, "generate"), out).CombinedOutput(); err != nil {
		t.Fatalf("generate: %v: %s", err, made)
	}
	s.answers(t, at, []string{"PYTHONPATH=" + out}, "/usr/bin/python3", "tests/test_client.py")
}

// TestTypeScriptClient runs the tests of integrations/typescript.
func TestTypeScriptClient(t *testing.T) {
	s := start(t)
	rest := harness.NewRelay(t, "tcp", s.Addresses().REST)
	s.rest = rest
	s.answers(t, filepath.Join("..", "..", "..", "integrations", "typescript"),
		[]string{"INGOT_URL=https://" + rest.Address(), "NODE_EXTRA_CA_CERTS=" + s.CAFile()}, "npm", "test")
}

// stranger is the address of a server whose certificate no client has a root for.
func stranger(t *testing.T) string {
	t.Helper()
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// answers runs a program in a folder, and does what it asks for a line at a time.
func (s site) answers(t *testing.T, dir string, env []string, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "INGOT_SERVER="+s.Front.Address(), "INGOT_CA_FILE="+s.CAFile(),
		"INGOT_TOKEN_FILE="+s.tokenFile, "INGOT_MACHINE="+s.machine, "INGOT_STRANGER="+stranger(t))...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var ask struct{ Ask string }
		switch {
		case json.Unmarshal(lines.Bytes(), &ask) != nil:
			t.Log(lines.Text())
			continue
		case ask.Ask == "restart":
			s.restart()
		default:
			t.Errorf("the program asks for %q", ask.Ask)
		}
		if _, err := fmt.Fprintln(in, "{}"); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%s: %v", program, err)
	}
}
