package boot

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/system"
)

// kexecHost is a machine whose kernel answers kexec_file_load in the given way.
func kexecHost(t *testing.T, disabled string, load func(kernel, initrd int, cmdline string, flags int) error) *Control {
	t.Helper()
	root := t.TempDir()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"proc/sys/kernel/kexec_load_disabled": disabled, "proc/self/status": string(status), "sys/kernel/kexec_loaded": "0\n",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(data), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	h := &Control{System: system.NewSystem(root, false, slog.Default())}
	h.Kernel.KexecLoad = load
	return h
}

// willing takes every kernel, and returns EBADF where there is no file, as Linux does.
func willing(kernel, _ int, _ string, flags int) error {
	if kernel < 0 && flags != kexecFileUnload {
		return unix.EBADF
	}
	return nil
}

func TestKexecSupport(t *testing.T) {
	t.Parallel()
	answer := func(err error) func(int, int, string, int) error {
		return func(int, int, string, int) error { return err }
	}
	for name, c := range map[string]struct {
		disabled string
		load     func(int, int, string, int) error
		want     string
	}{
		"works":         {"0\n", willing, ""},
		"not built in":  {"", willing, effect.ReasonNoKexec},
		"disabled":      {"1\n", willing, effect.ReasonNoKexec},
		"locked down":   {"0\n", answer(unix.EPERM), effect.ReasonNoKexec},
		"not this call": {"0\n", answer(unix.ENOSYS), effect.ReasonNoKexec},
	} {
		h := kexecHost(t, c.disabled, c.load)
		if got := effect.ReasonOf(h.KexecSupport()); got != c.want || h.CanKexec() != (c.want == "") {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

func TestKexecLoadsAndEnters(t *testing.T) {
	t.Parallel()
	var loaded string
	h := kexecHost(t, "0", func(kernel, initrd int, cmdline string, flags int) error {
		if kernel >= 0 && initrd >= 0 && flags == 0 {
			loaded = cmdline
		}
		return willing(kernel, initrd, cmdline, flags)
	})
	var rebooted int
	synced := false
	h.Kernel.Reboot = func(cmd int) error { rebooted = cmd; return nil }
	h.Kernel.Sync = func() { synced = true }
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := h.LoadKernel(effect.Cause{}, f, f, "ingot.role=installer"); err != nil || loaded != "ingot.role=installer" {
		t.Fatalf("loaded %q, %v", loaded, err)
	}
	if err := h.EnterKernel(
		t.Context(),
		effect.Cause{},
	); err != nil || rebooted != unix.LINUX_REBOOT_CMD_KEXEC ||
		!synced {
		t.Errorf("entered by %x, synced: %t, %v", rebooted, synced, err)
	}
	is, err := h.KernelLoaded()
	if is || err != nil || h.UnloadKernel() != nil {
		t.Errorf("loaded: %t, %v", is, err)
	}
}

func TestKexecStopsServicesWhereThereAreAny(t *testing.T) {
	t.Parallel()
	h := kexecHost(t, "0", willing)
	if err := os.MkdirAll(h.Path("run/systemd/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	var asked []string
	h.Kernel.Run = func(_ context.Context, name string, args ...string) ([]byte, error) {
		asked = append([]string{name}, args...)
		return nil, nil
	}
	h.Kernel.Reboot = func(int) error { return errors.New("not with services running") }
	if err := h.EnterKernel(t.Context(), effect.Cause{}); err != nil ||
		!slices.Equal(asked, []string{"systemctl", "--no-block", "--no-ask-password", "--no-wall", "kexec"}) {
		t.Errorf("asked %q, %v", asked, err)
	}
	hooked := false
	h.Kexec = func(context.Context) error { hooked = true; return nil }
	if err := h.EnterKernel(t.Context(), effect.Cause{}); err != nil || !hooked {
		t.Errorf("as init: %t, %v", hooked, err)
	}
}
