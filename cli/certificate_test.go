package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/erasure"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// erased is a server with a certificate of its own CA, and the file of its root certificate.
func erased(t *testing.T) (f *fakeServer, root string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ca")
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	a, err := ca.New(ca.Config{Dir: dir, Clock: clock.NewFake(now)})
	if err != nil {
		t.Fatal(err)
	}
	key, chain, err := a.DocumentSigner(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	document, err := erasure.Sign(erasure.Statement{
		Version: erasure.Version, IssuedAt: now, IssuedBy: "c-1", Machine: erasure.Machine{ID: "machine-1"},
		Work:  erasure.Work{ID: "op-1", Type: "ERASE"},
		Disks: []erasure.Disk{{ID: "nvme-A", Method: "nvme-sanitize", Verification: "read whole, all zero"}},
	}, key, chain)
	if err != nil {
		t.Fatal(err)
	}
	root = filepath.Join(dir, "trusted.pem")
	if err := os.WriteFile(root, a.RootPEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	return &fakeServer{certificate: string(document), op: &pb.Operation{OperationId: "op-1",
		Evidence: map[string]string{evidence.EraseMethod: "nvme-sanitize"}}}, root
}

// TestACertificateAsPDF is verified like the JSON, by the attachment alone, and pages that were changed are named.
func TestACertificateAsPDF(t *testing.T) {
	f, root := erased(t)
	dir := t.TempDir()
	file, other := filepath.Join(dir, "m-1.pdf"), filepath.Join(dir, "other")
	if got := f.run(t, "certificate", "machine-1", "--out", file, "--ca-file", root); got.code != command.ExitOK ||
		!strings.Contains(got.err, "ingot certificate verify "+file) {
		t.Fatalf("%+v", got)
	}
	pages, err := os.ReadFile(file)
	if err != nil || !bytes.HasPrefix(pages, []byte("%PDF-")) {
		t.Fatalf("%.20q, %v", pages, err)
	}
	if got := f.run(t, "certificate", "machine-1", "-o", "pdf", "--ca-file", root); got.code != command.ExitOK ||
		got.out != string(pages) {
		t.Errorf("on standard output: %d, %.20q, %s", got.code, got.out, got.err)
	}
	if got := f.run(t, "certificate", "verify", file, "--ca-file", root); got.code != command.ExitOK || got.err != "" ||
		!strings.Contains(got.out, "nvme-A") {
		t.Errorf("%+v", got)
	}
	if err := os.WriteFile(other, bytes.Replace(pages, []byte("/Title"), []byte("/Tilte"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := f.run(t, "certificate", "verify", other, "--ca-file", root); got.code != command.ExitOK ||
		!strings.Contains(got.err, "not those that this version makes") || !strings.Contains(got.out, "nvme-A") {
		t.Errorf("with other pages: %+v", got)
	}
}

func TestACertificateAsPDFThatIsNotMade(t *testing.T) {
	f, root := erased(t)
	_, stranger := erased(t)
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pdf")
	if err := os.WriteFile(empty, []byte("%PDF-1.4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"not genuine": {[]string{"certificate", "machine-1", "-o", "pdf", "--ca-file", stranger}, command.ExitFailed,
			"not signed by"},
		"no attachment": {[]string{"certificate", "verify", empty, "--ca-file", root}, command.ExitFailed,
			"no erasure certificate"},
		"another command": {[]string{"certificate", "verify", empty, "-o", "pdf"}, 1, "--output must be"},
		"an empty form":   {[]string{"list", "-o", ""}, 1, "--output must be"},
	} {
		if got := f.run(t, c.args...); got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	terminal := func(c *command.Config) { c.OutTerminal = true }
	if got := f.runWith(t, terminal, "certificate", "machine-1", "-o", "pdf", "--ca-file", root); got.code != 1 ||
		!strings.Contains(got.err, "--out FILE.pdf") {
		t.Errorf("to a terminal: %+v", got)
	}
}
