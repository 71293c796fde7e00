package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// kexecHost is a machine whose kernel answers kexec_file_load in the given way.
func kexecHost(t *testing.T, disabled string, load func(kernel, initrd int, cmdline string, flags int) error) *Linux {
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
	h := New(Config{Root: root})
	h.kernel.kexecLoad = load
	return h
}

// willing takes every kernel, and says EBADF to what has no file, as Linux does.
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
		"not built in":  {"", willing, ReasonNoKexec},
		"disabled":      {"1\n", willing, ReasonNoKexec},
		"locked down":   {"0\n", answer(unix.EPERM), ReasonNoKexec},
		"not this call": {"0\n", answer(unix.ENOSYS), ReasonNoKexec},
	} {
		h := kexecHost(t, c.disabled, c.load)
		if got := ReasonOf(h.KexecSupport()); got != c.want || slices.Contains(h.Capabilities(), CapKexec) != (c.want == "") {
			t.Errorf("%s: %q, capabilities %v", name, got, h.Capabilities())
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
	h.kernel.reboot = func(cmd int) error { rebooted = cmd; return nil }
	h.kernel.sync = func() { synced = true }
	f, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := h.LoadKernel(Effect{}, f, f, "ingot.role=installer"); err != nil || loaded != "ingot.role=installer" {
		t.Fatalf("loaded %q, %v", loaded, err)
	}
	if err := h.EnterKernel(t.Context(), Effect{}); err != nil || rebooted != unix.LINUX_REBOOT_CMD_KEXEC || !synced {
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
	if err := os.MkdirAll(h.path("run/systemd/system"), 0o755); err != nil {
		t.Fatal(err)
	}
	var asked []string
	h.kernel.run = func(_ context.Context, name string, args ...string) ([]byte, error) {
		asked = append([]string{name}, args...)
		return nil, nil
	}
	h.kernel.reboot = func(int) error { return errors.New("not with services running") }
	if err := h.EnterKernel(t.Context(), Effect{}); err != nil ||
		!slices.Equal(asked, []string{"systemctl", "--no-block", "--no-ask-password", "--no-wall", "kexec"}) {
		t.Errorf("asked %q, %v", asked, err)
	}
	hooked := false
	h.cfg.Kexec = func(context.Context) error { hooked = true; return nil }
	if err := h.EnterKernel(t.Context(), Effect{}); err != nil || !hooked {
		t.Errorf("as init: %t, %v", hooked, err)
	}
}
