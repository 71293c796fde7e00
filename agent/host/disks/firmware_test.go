package disks

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
)

// TestFirmwareKind: what the kernel cannot be certain of is no reason to refuse an image.
func TestFirmwareKind(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only PCs have a BIOS")
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"UEFI":          {map[string]string{"sys/firmware/efi/fw_platform_size": "64"}, "uefi"},
		"BIOS":          {map[string]string{"proc/sys/kernel/bootloader_type": "114\n"}, "bios"},
		"kexec":         {map[string]string{"proc/sys/kernel/bootloader_type": "13\n"}, ""},
		"kexec of UEFI": {map[string]string{"proc/sys/kernel/bootloader_type": "13\n", "sys/firmware/efi/x": ""}, "uefi"},
	} {
		root := t.TempDir()
		for name, content := range c.files {
			hosttest.WriteFile(t, filepath.Join(root, name), content)
		}
		h := installerOf(root, Open)
		if got := h.FirmwareKind(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
