package resetdevices_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/command"
	"github.com/ingot-metal/ingot/agent/command/resetdevices"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// device makes a PCI function in a sysfs of our own. Its reset is a file, into which the kernel would look.
func device(t *testing.T, root, address, class, vendor string, config string, resets bool) string {
	t.Helper()
	dir := filepath.Join(root, "sys/bus/pci/devices", address)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{
		"class": "0x" + class + "\n", "vendor": "0x" + vendor + "\n", "device": "0x2330\n", "config": config, "reset_method": "flr bus\n",
	}
	if resets {
		files["reset"] = ""
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "reset")
}

func written(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func run(t *testing.T, root string) command.Result {
	t.Helper()
	e := resetdevices.New(host.New(host.Config{Root: root}))
	in, settled, err := e.Prepare(t.Context(), &fleetv1.CommandSpec{})
	if err != nil || settled != nil {
		t.Fatalf("prepare: %v %v", settled, err)
	}
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	r, err := e.Execute(t.Context(), command.Job{
		Spec: &fleetv1.CommandSpec{}, Intent: raw, Progress: func(int, string) {}, Logf: func(string, ...any) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const nvidia = "\xde\x10\x30\x23"

// Accelerators are reset through the kernel, and the evidence says which and how; a server's display chip is left alone.
func TestAcceleratorsAreResetAndDisplayChipsAreNot(t *testing.T) {
	root := t.TempDir()
	gpu := device(t, root, "0000:3b:00.0", "030200", "10de", nvidia, true)
	other := device(t, root, "0000:5e:00.0", "120000", "10de", nvidia, true)
	display := device(t, root, "0000:03:00.0", "030000", "1a03", "\x03\x1a", true)
	r := run(t, root)
	if r.Outcome != fleetv1.CommandResult_SUCCEEDED || r.Evidence[evidence.DevicesReset] != "0000:3b:00.0,0000:5e:00.0" {
		t.Fatalf("%+v", r)
	}
	if !strings.Contains(r.Evidence["device_0"], "flr bus") {
		t.Errorf("the evidence does not say how: %v", r.Evidence)
	}
	if written(t, gpu) != "1" || written(t, other) != "1" || written(t, display) != "" {
		t.Errorf("reset %q %q, and the display chip %q", written(t, gpu), written(t, other), written(t, display))
	}
}

// What cannot be reset, or does not answer afterwards, is a failure that says so.
func TestADeviceThatCannotBeResetFails(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		resets bool
		retry  bool
	}{
		"the kernel has no reset": {nvidia, false, false}, "gone after the reset": {"\xff\xff\xff\xff", true, true},
	} {
		root := t.TempDir()
		device(t, root, "0000:3b:00.0", "030200", "10de", c.config, c.resets)
		r := run(t, root)
		if r.Outcome != fleetv1.CommandResult_FAILED || r.Reason != baremetalv1.Reason_DEVICE_RESET_FAILED || r.Retryable != c.retry ||
			r.Evidence[evidence.DevicesReset] != "" {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

func TestAMachineWithoutAcceleratorsSaysSo(t *testing.T) {
	root := t.TempDir()
	device(t, root, "0000:03:00.0", "030000", "1a03", "\x03\x1a", true)
	if r := run(t, root); r.Outcome != fleetv1.CommandResult_SUCCEEDED || !strings.HasPrefix(r.Evidence[evidence.DevicesReset], "none") {
		t.Errorf("%+v", r)
	}
}
