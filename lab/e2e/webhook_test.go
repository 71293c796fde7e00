package e2e

import (
	"bytes"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// told is an event as a receiver got it.
type told struct {
	header http.Header
	body   []byte
}

// TestWebhooksByTheCommandLine: a receiver with a certificate of its owner's own authority gets no event until the
// configuration names that authority. Events that were dropped meanwhile are sent again.
func TestWebhooksByTheCommandLine(t *testing.T) {
	t.Parallel()
	events := make(chan told, 100)
	receiver := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		events <- told{r.Header.Clone(), body}
	}))
	t.Cleanup(receiver.Close)
	var authority string
	c := harness.New(t, harness.Options{Configure: func(cfg *config.Config) {
		cfg.Webhooks.AllowLoopback, cfg.Webhooks.CAFile = true, authority
	}})
	ingot := func(wantCode int, line string) string {
		t.Helper()
		code, out := c.Ingot(strings.Fields(line)...)
		if code != wantCode {
			t.Fatalf("ingot %s: exit code %d, want %d\n%s", line, code, wantCode, out)
		}
		return out
	}
	out := ingot(0, "webhook create "+receiver.URL+"/hook --name hook --event machine.registered")
	secret := regexp.MustCompile(`whsec_\S+`).FindString(out)
	if out := ingot(5, "webhook test hook"); !strings.Contains(out, "TLS: x509: certificate signed by unknown authority") {
		t.Errorf("the ping ended with %s", out)
	}
	if len(events) != 0 {
		t.Error("an event was sent to whom nobody knows")
	}
	authority = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(authority,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: receiver.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Stop()
	c.Start()
	c.WaitReady()
	ingot(0, "webhook test hook")
	dead := strings.TrimSpace(ingot(0, "webhook deliveries hook --state dead -o name"))
	ingot(0, "webhook redeliver "+dead)
	c.Register(&baremetalv1.Machine{MachineId: "m-told"})
	testkit.Eventually(t, rig.Soon, func() bool { return len(events) == 3 }, "not all events have come")
	lib, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for range 3 {
		e := <-events
		if err := lib.Verify(e.body, e.header); err != nil {
			t.Errorf("signature: %v", err)
		}
		if bytes.Contains(e.body, []byte(`"type":"machine.registered"`)) && bytes.Contains(e.body, []byte("m-told")) {
			seen++
		}
	}
	if seen != 1 {
		t.Errorf("the machine was told of %d times", seen)
	}
	if out := ingot(0, "webhook rotate hook --overlap 1h"); strings.Contains(out, secret) ||
		strings.Count(out, "SecretId:") != 2 {
		t.Errorf("rotated: %s", out)
	}
	ingot(0, "webhook delete hook")
	ingot(3, "webhook get hook")
	if out := ingot(0, "audit hook"); !strings.Contains(out, "ROTATE_WEBHOOK_SECRET") || strings.Contains(out, "whsec_") {
		t.Errorf("audit log:\n%s", out)
	}
}
