package disks

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/erase"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/disk"
)

const loopSize = 96 << 20

// installer is a host whose only disk is a loop device, as it would be seen from memory.
func installer(t *testing.T) (h *Storage, device string) {
	t.Helper()
	m, err := disktest.NewMachine(t.TempDir(), loopSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Detach(); err != nil {
			t.Error(err)
		}
	})
	return installerOf(m.Root, Open), m.Device
}

// installerOf is an installer on the disks below a root.
func installerOf(root string, open func(string, bool) (Disk, error)) *Storage {
	return NewStorage(system.NewSystem(root, true, slog.Default()), Patience{}, "template", open, image.NewClient())
}

func osImage(t *testing.T) []byte {
	t.Helper()
	b, err := disktest.Image(t.TempDir(), 12<<20)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func order(t *testing.T, raw []byte, commit *image.Commit) WriteImage {
	t.Helper()
	file, err := disktest.Pack(raw)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file))
	}))
	t.Cleanup(srv.Close)
	return WriteImage{
		URL: srv.URL, FileSize: int64(len(file)), Format: image.RawZstd, RawSize: int64(len(raw)),
		Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(raw)),
		Identity: func(context.Context) (NextSystem, error) {
			return NextSystem{
				Files: map[string][]byte{"bootstrap-token": []byte("secret"), "etc/hostname": []byte("n1\n")},
			}, nil
		},
		Committing: func(_ context.Context, c image.Commit) error {
			*commit = c
			return nil
		},
	}
}

func TestWriteImageOnARealDevice(t *testing.T) {
	h, device := installer(t)
	raw := osImage(t)
	var commit image.Commit
	dev, got, err := h.WriteImage(t.Context(), effect.Cause{}, order(t, raw, &commit))
	if err != nil {
		t.Fatal(err)
	}
	if dev.Path != device || dev.ID() != "LOOP-1" || got.DigestString() != fmt.Sprintf("sha256:%x", sha256.Sum256(raw)) ||
		len(got.Warnings) > 0 {
		t.Errorf("wrote %s: %+v", dev, got)
	}
	// Some kernels have no parser for the table; partx is one outside.
	if out, err := exec.Command("partx", "--update", device).CombinedOutput(); err != nil {
		t.Fatalf("partx: %v: %s", err, out)
	}
	mountpoint := t.TempDir()
	if err := unix.Mount(device+"p2", mountpoint, "ext4", unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"bootstrap-token": "secret", "etc/hostname": "n1\n"} {
		b, err := os.ReadFile(filepath.Join(mountpoint, name))
		info, statErr := os.Stat(filepath.Join(mountpoint, name))
		if err != nil || statErr != nil || string(b) != want || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %q, %v (%v, %v)", name, b, info, err, statErr)
		}
	}
	if err := unix.Unmount(mountpoint, 0); err != nil {
		t.Fatal(err)
	}
	for tool, args := range map[string][]string{"sgdisk": {"-v", device}, "/usr/sbin/e2fsck": {"-fn", device + "p2"}} {
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil || tool == "sgdisk" &&
			!strings.Contains(string(out), "No problems found") {
			t.Errorf("%s: %s (%v)", tool, out, err)
		}
	}
	written := func(id, digest string) WriteImage {
		return WriteImage{Disk: disk.Ref{ID: id}, Digest: digest, RawSize: int64(len(raw))}
	}
	if err := h.CheckImage(t.Context(), written("LOOP-1", got.DigestString()), commit); err != nil {
		t.Errorf("CheckImage: %v", err)
	}
	if err := h.CheckImage(
		t.Context(),
		written("LOOP-1", "sha256:"+strings.Repeat("00", 32)),
		commit,
	); !errors.Is(
		err,
		image.ErrAnother,
	) {
		t.Errorf("CheckImage with another digest: %v", err)
	}
	if err := h.CheckImage(t.Context(), written("LOOP-2", got.DigestString()), commit); err == nil {
		t.Error("CheckImage of a disk that is not there")
	}
}

func TestWriteImageRefuses(t *testing.T) {
	h, device := installer(t)
	raw := osImage(t)
	for name, c := range map[string]struct {
		change func(h *Storage, w *WriteImage)
		is     func(error) bool
	}{
		"not the installer": {func(h *Storage, _ *WriteImage) { h.sys.Installer = false },
			func(err error) bool { return effect.ReasonOf(err) == effect.ReasonNotInstaller }},
		"protected": {func(_ *Storage, w *WriteImage) { w.Protected = []string{"serial=LOOP-1"} }, func(err error) bool {
			var no *disk.NoUniqueMatch
			return errors.As(err, &no)
		}},
		"bad rule": {func(_ *Storage, w *WriteImage) { w.DiskRule = "biggest" },
			func(err error) bool { return errors.Is(err, effect.ErrInvalid) }},
		"bad digest": {func(_ *Storage, w *WriteImage) { w.Digest = "md5:00" },
			func(err error) bool { return errors.Is(err, effect.ErrInvalid) }},
		"another disk": {func(_ *Storage, w *WriteImage) { w.Disk.ID = "OTHER" },
			func(err error) bool { return errors.Is(err, ErrNotWritten) }},
	} {
		other := installerOf(h.sys.Root, Open)
		w := order(t, raw, new(image.Commit))
		c.change(other, &w)
		if _, _, err := other.WriteImage(t.Context(), effect.Cause{}, w); !c.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	held, err := os.OpenFile(device, os.O_RDWR|os.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if _, _, err := h.WriteImage(t.Context(), effect.Cause{},
		order(t, raw, new(image.Commit))); effect.ReasonOf(err) != effect.ReasonDiskBusy {
		t.Errorf("a disk that is in use: %v", err)
	}
	head := make([]byte, 4096)
	if _, err := held.ReadAt(head, 0); err != nil || !bytes.Equal(head, make([]byte, 4096)) {
		t.Errorf("refused, and written all the same (%v)", err)
	}
}

func TestEraseOnARealDevice(t *testing.T) {
	h, device := installer(t)
	junk := make([]byte, 8<<20)
	rand.NewChaCha8([32]byte{3}).Read(junk)
	for _, m := range []erase.Method{erase.Overwrite, erase.Discard, erase.Auto} {
		f, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(junk, 4<<20)
		if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
			t.Fatal(err)
		}
		devices, err := h.DisksToErase("", nil)
		if err != nil || len(devices) != 1 {
			t.Fatalf("%v, %v", devices, err)
		}
		got, err := h.EraseDisk(t.Context(), effect.Cause{}, devices[0].Ref(), m, func(int, string) {})
		if err != nil || m == erase.Auto && got.Method != erase.Discard ||
			!strings.Contains(got.Verification, "read back as zeros") {
			t.Errorf("%s: %+v, %v", m, got, err)
		}
	}
	for _, m := range []erase.Method{erase.NVMeFormat, erase.NVMeSanitize, erase.ATASecure} {
		if _, err := h.EraseDisk(t.Context(), effect.Cause{}, disk.Ref{ID: "LOOP-1"}, m, nil); !errors.Is(err,
			erase.ErrUnsupported) {
			t.Errorf("%s: %v", m, err)
		}
	}
	if _, err := h.DisksToErase("", []string{"size>=1B"}); err == nil {
		t.Error("a protected disk would be erased")
	}
}

func TestControllers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"nvme0n1": "0", "nvme10n2": "10", "sda": "", "nvme0": "", "vda": ""} {
		if got := controllerOf(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	all := []disk.Device{{Name: "nvme0n1"}, {Name: "nvme0n2"}, {Name: "nvme1n1"}, {Name: "sda"}, {Name: "sdb"}}
	// Two controllers of one subsystem (a dual-port drive) share what a sanitize takes.
	all = append(all, disk.Device{Name: "nvme2n1", Subsystem: "nqn.a"}, disk.Device{Name: "nvme3n2", Subsystem: "nqn.a"},
		disk.Device{Name: "nvme4n1", Subsystem: "nqn.b"})
	for i, want := range []bool{false, false, true, true, true, false, false, true} {
		if aloneOnController(all[i], all) != want {
			t.Errorf("%s alone: %t", all[i].Name, !want)
		}
	}
}

// Two disks of one name are none.
func TestSameDiskIsUnique(t *testing.T) {
	t.Parallel()
	all := []disk.Device{
		{Path: "/dev/nvme0n1", Serial: "S", WWN: "eui.1"}, {Path: "/dev/nvme0n2", Serial: "S", WWN: "eui.2"},
		{Path: "/dev/sda", Serial: "T"}, {Path: "/dev/sdb", Serial: "T"}, {Path: "/dev/vda"},
	}
	for id, want := range map[string]string{"eui.2": "/dev/nvme0n2", "/dev/vda": "/dev/vda", "S": "", "T": "", "X": ""} {
		if got, err := disk.Find(all, disk.Ref{ID: id}); got.Path != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v", id, got.Path, err)
		}
	}
}
