package disks

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/host/effect"
)

// TestAnOldInstallationOnAnotherDiskIsNotStartedFrom: real devices, with tables that sgdisk and the installer make. The
// write is refused, before its first byte, when another disk has an installation of the same image or a state
// partition. Other tables do not matter.
func TestAnOldInstallationOnAnotherDiskIsNotStartedFrom(t *testing.T) {
	h, device := installer(t)
	other, detach, err := disktest.Loop(t.TempDir(), loopSize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := detach(); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(h.sys.Root, "sys/block", filepath.Base(other))
	for name, text := range map[string]string{"size": fmt.Sprint(loopSize / 512), "serial": "OTHER", "device/x": ""} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	raw, another := osImage(t), osImage(t) // sgdisk draws other identities for each
	ordered := func(serial string, b []byte) error {
		w := order(t, b, new(image.Commit))
		w.DiskRule = "serial=" + serial
		_, _, err := h.WriteImage(t.Context(), effect.Cause{}, w)
		return err
	}
	refused := func(name, says string, err error) {
		t.Helper()
		var e *image.Error
		if !errors.As(err, &e) || e.Reason != baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", name, err)
		}
		head := make([]byte, 4096)
		if b, err := os.Open(device); err != nil {
			t.Error(err)
		} else if _, err := b.ReadAt(head, 0); err != nil || !bytes.Equal(head, make([]byte, len(head))) || b.Close() != nil {
			t.Errorf("%s: written all the same (%v)", name, err)
		}
	}
	if err := os.WriteFile(other, raw, 0o600); err != nil { // the image as dd writes it
		t.Fatal(err)
	}
	refused("the same image", "has the PARTUUID", ordered("LOOP-1", raw))
	if err := ordered("OTHER", another); err != nil {
		t.Fatal(err)
	}
	refused("an old installation", "is called INGOT-STATE", ordered("LOOP-1", raw))
	w := order(t, raw, new(image.Commit))
	w.Disk.ID = "LOOP-1"
	refused("the probe", "is called INGOT-STATE", h.ProbeImage(t.Context(), w, 512))
	if err := os.WriteFile(other, another, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ordered("LOOP-1", raw); err != nil {
		t.Errorf("beside a disk with a table of its own: %v", err)
	}
}
