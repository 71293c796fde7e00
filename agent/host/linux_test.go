package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/agent/inventory"
)

func TestMain(m *testing.M) { hosttest.Main(m) }

// fakeRoot is a host below a directory, whose kernel writes down what it was asked and does nothing.
func fakeRoot(t *testing.T, files map[string]string) (*Linux, *[]string) {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		hosttest.WriteFile(t, filepath.Join(root, name), content)
	}
	h := New(Config{Root: root})
	calls := &[]string{}
	note := func(s string) { *calls = append(*calls, s) }
	h.Kernel = system.Kernel{
		Sync: func() { note("sync") },
		Reboot: func(cmd int) error {
			if cmd != unix.LINUX_REBOOT_CMD_RESTART {
				return errors.New("not a restart")
			}
			note("restart")
			return nil
		},
		Sethostname: func(name []byte) error {
			note("sethostname")
			return os.WriteFile(filepath.Join(root, "proc/sys/kernel/hostname"), append(name, '\n'), 0o644)
		},
		Run: func(_ context.Context, name string, args ...string) ([]byte, error) {
			note(name + " " + strings.Join(args, " "))
			return nil, nil
		},
		Euid: func() int { return 0 },
	}
	return h, calls
}

const (
	allCaps = "Name:\tx\nCapEff:\t000001ffffffffff\n"
	noCaps  = "Name:\tx\nCapEff:\t0000000000000000\n"
)

func TestRebootTakesTheRightRoad(t *testing.T) {
	t.Parallel()
	systemd := map[string]string{"run/systemd/system/x": "", "proc/self/status": allCaps}
	bare := map[string]string{"proc/self/status": allCaps}
	const ask = "systemctl --no-block --no-ask-password --no-wall reboot"
	for _, tc := range []struct {
		name  string
		files map[string]string
		mode  boot.RebootMode
		want  []string
	}{
		{"graceful under systemd", systemd, boot.RebootGraceful, []string{ask}},
		{"forced under systemd", systemd, boot.RebootForced, []string{"sync", "restart"}},
		{"graceful without systemd", bare, boot.RebootGraceful, []string{"sync", "restart"}},
		{"forced without systemd", bare, boot.RebootForced, []string{"sync", "restart"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			h, calls := fakeRoot(t, tc.files)
			if err := h.Reboot(t.Context(), effect.Cause{}, tc.mode); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(*calls, tc.want) {
				t.Errorf("asked %q, want %q", *calls, tc.want)
			}
		})
	}
}

func TestRebootThroughTheHook(t *testing.T) {
	t.Parallel()
	h, calls := fakeRoot(t, map[string]string{"run/systemd/system/x": ""})
	var got boot.RebootMode
	h.Rebooter = func(_ context.Context, mode boot.RebootMode) error { got = mode; return nil }
	if err := h.Reboot(
		t.Context(),
		effect.Cause{},
		boot.RebootForced,
	); err != nil || got != boot.RebootForced ||
		len(*calls) != 0 {
		t.Fatalf("hook got %q, kernel was asked %q, error %v", got, *calls, err)
	}
	if !slices.Contains(h.Capabilities(), CapReboot) {
		t.Error("a host with a hook cannot reboot")
	}
}

func TestRebootRefusals(t *testing.T) {
	t.Parallel()
	h, calls := fakeRoot(t, map[string]string{"proc/self/status": noCaps})
	if err := h.Reboot(t.Context(), effect.Cause{}, boot.RebootGraceful); !errors.Is(err, effect.ErrUnsupported) {
		t.Errorf("without privileges: %v", err)
	}
	if err := h.Reboot(t.Context(), effect.Cause{}, "soon"); !errors.Is(err, effect.ErrInvalid) {
		t.Errorf("unknown mode: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h.Rebooter = func(context.Context, boot.RebootMode) error { t.Error("rebooted after cancel"); return nil }
	if err := h.Reboot(ctx, effect.Cause{}, boot.RebootGraceful); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if len(*calls) != 0 {
		t.Errorf("a refused reboot asked %q", *calls)
	}
	if slices.Contains(h.Capabilities(), CapReboot) != (h.Rebooter != nil) {
		t.Error("capabilities disagree")
	}
}

// A reboot is declined only where the kernel has said no, or where systemd has and no shutdown is under way. The
// answers are those of systemd 252.
func TestADeclinedReboot(t *testing.T) {
	t.Parallel()
	failed := errors.New("exit status 1")
	type answers map[string]string
	for name, tc := range map[string]struct {
		answers  answers
		declined bool
	}{
		"nothing under way": {answers{"busctl": "b false\n", "list-jobs": "No jobs running.\n"}, true},
		"other jobs":        {answers{"busctl": "b false\n", "list-jobs": "812 nginx.service start running\n"}, true},
		"logind prepares":   {answers{"busctl": "b true\n", "list-jobs": "No jobs running.\n"}, false},
		"a job is queued":   {answers{"busctl": "b false\n", "list-jobs": "901 reboot.target start waiting\n"}, false},
		"logind is silent":  {answers{"list-jobs": "No jobs running.\n"}, false},
		"systemd is silent": {answers{"busctl": "b false\n"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, _ := fakeRoot(t, map[string]string{"run/systemd/system/x": "", "proc/self/status": allCaps})
			h.Kernel.Run = func(_ context.Context, name string, args ...string) ([]byte, error) {
				for asked, answer := range tc.answers {
					if name == asked || args[0] == asked {
						return []byte(answer), nil
					}
				}
				return []byte("Call to Reboot failed: Access denied"), failed
			}
			err := h.Reboot(t.Context(), effect.Cause{}, boot.RebootGraceful)
			if err == nil || errors.Is(err, effect.ErrDeclined) != tc.declined ||
				!strings.Contains(err.Error(), "Access denied") {
				t.Errorf("%v", err)
			}
		})
	}
	h, _ := fakeRoot(t, map[string]string{"proc/self/status": allCaps})
	h.Kernel.Reboot = func(int) error { return unix.EPERM }
	if err := h.Reboot(t.Context(), effect.Cause{}, boot.RebootForced); !errors.Is(err, effect.ErrDeclined) {
		t.Errorf("the kernel has declined: %v", err)
	}
}

func TestSetHostname(t *testing.T) {
	t.Parallel()
	h, calls := fakeRoot(t, map[string]string{"etc/hostname": "old\n", "proc/sys/kernel/hostname": "old\n"})
	for range 2 {
		if err := h.SetHostname(t.Context(), effect.Cause{}, "rack7-n12.example"); err != nil {
			t.Fatal(err)
		}
	}
	file, err := os.ReadFile(h.Path("etc/hostname"))
	if err != nil || string(file) != "rack7-n12.example\n" {
		t.Errorf("file holds %q, %v", file, err)
	}
	if name, err := h.Hostname(t.Context()); err != nil || name != "rack7-n12.example" {
		t.Errorf("Hostname = %q, %v", name, err)
	}
	if len(*calls) != 1 {
		t.Errorf("the same name twice asked %q", *calls)
	}
	if left, err := filepath.Glob(h.Path("etc/.ingot-*")); err != nil || len(left) != 0 {
		t.Errorf("left behind %q, %v", left, err)
	}
}

func TestSetHostnameReadsBack(t *testing.T) {
	t.Parallel()
	h, _ := fakeRoot(t, map[string]string{"etc/hostname": "old\n", "proc/sys/kernel/hostname": "old\n"})
	h.Kernel.Sethostname = func([]byte) error { return nil } // claims, and does nothing
	if err := h.SetHostname(t.Context(), effect.Cause{}, "new"); !errors.Is(err, effect.ErrReadBack) {
		t.Errorf("a kernel that keeps the old name: %v", err)
	}
}

func TestValidateHostname(t *testing.T) {
	t.Parallel()
	for name, ok := range map[string]bool{
		"a": true, "rack-7": true, "R2D2.example.org": true, "0a": true, strings.Repeat("a", 63): true,
		"": false, "-a": false, "a-": false, "a..b": false, "a.": false, "a_b": false, "a b": false, "ä": false,
		"a\nb": false, strings.Repeat("a", 64): false, strings.Repeat("a.", 32) + "aa": false,
	} {
		if err := system.ValidateHostname(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestRepaveIsRefusedWithItsReason(t *testing.T) {
	t.Parallel()
	h, _ := fakeRoot(t, nil)
	_, err := h.Repave(t.Context(), effect.Cause{}, RepaveRequest{}, nil)
	if !errors.Is(err, effect.ErrUnsupported) || effect.ReasonOf(err) != effect.ReasonNotInstaller {
		t.Errorf("Repave: %v", err)
	}
	if slices.Contains(h.Capabilities(), CapRepave) {
		t.Error("claims to repave")
	}
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	h, _ := fakeRoot(t, map[string]string{
		"proc/sys/kernel/random/boot_id": "b-1\n", "proc/sys/kernel/hostname": "n1\n", "etc/machine-id": "m-1\n",
		"sys/class/dmi/id/product_uuid": "AAAA\n",
	})
	id, err := h.Identity(t.Context())
	if err != nil || id.BootID != "b-1" || id.Hostname != "n1" || id.MachineID != "m-1" || id.Simulated {
		t.Fatalf("Identity = %+v, %v", id, err)
	}
	empty, _ := fakeRoot(t, nil)
	if _, err := empty.Identity(t.Context()); err == nil {
		t.Error("an identity without a boot id is no error")
	}
}

func TestFingerprintOfOlderAgents(t *testing.T) {
	t.Parallel()
	base := inventory.System{UUID: "AAAA", BoardSerial: "b", ChassisSerial: "c", Vendor: "v"}
	macs := []string{"02:00:00:00:00:01", "02:00:00:00:00:02"}
	want := fingerprintV1(base, macs)
	same := base
	same.UUID, same.Vendor = "aaaa", "another name after a BIOS update"
	if fingerprintV1(same, macs) != want {
		t.Error("depends on more than the hardware")
	}
	for name, other := range map[string]string{
		"uuid":         fingerprintV1(inventory.System{UUID: "AAAB", BoardSerial: "b", ChassisSerial: "c"}, macs),
		"board":        fingerprintV1(inventory.System{UUID: "AAAA", BoardSerial: "x", ChassisSerial: "c"}, macs),
		"chassis":      fingerprintV1(inventory.System{UUID: "AAAA", BoardSerial: "b", ChassisSerial: "x"}, macs),
		"mac":          fingerprintV1(base, macs[:1]),
		"moved serial": fingerprintV1(inventory.System{UUID: "AAAA", BoardSerial: "c", ChassisSerial: "b"}, macs),
	} {
		if other == want {
			t.Errorf("does not depend on %s", name)
		}
	}
	if fingerprintV1(inventory.System{}, nil) != "" {
		t.Error("a machine that shows nothing has a fingerprint")
	}
}
