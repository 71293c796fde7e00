package debian

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writeFile writes below dir, and makes directories.
func writeFile(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestParseDepends(t *testing.T) {
	t.Parallel()
	got, err := parseDepends("linux-image-cloud-amd64\n  PreDepends: x\n  Depends: linux-image-6.1.0-56-cloud-amd64\n")
	if got != "linux-image-6.1.0-56-cloud-amd64" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := parseDepends("linux-image-cloud-amd64\n"); err == nil {
		t.Error("no error without a dependency")
	}
}

func TestKernelUnderTakesTheLastThatIsWhole(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, release := range []string{"6.1.0-9-cloud-amd64", "6.1.0-10-cloud-amd64", "6.1.0-11-cloud-amd64"} {
		writeFile(t, root, "boot/vmlinuz-"+release, nil)
	}
	if _, ok := kernelUnder(root); ok {
		t.Error("took a kernel without modules")
	}
	for _, release := range []string{"6.1.0-9-cloud-amd64", "6.1.0-10-cloud-amd64"} {
		writeFile(t, root, "lib/modules/"+release+"/modules.builtin", nil)
	}
	if k, ok := kernelUnder(root); !ok || k.Release != "6.1.0-10-cloud-amd64" {
		t.Errorf("took %+v, %t", k, ok)
	}
}

// Machines of the PE format.
const (
	efiAMD64 = 0x8664
	efiARM64 = 0xaa64
)

// efiProgram returns the headers of an EFI program for a machine, and nothing to run.
func efiProgram(machine uint16) []byte {
	le := binary.LittleEndian
	b := make([]byte, 0x400)
	copy(b, "MZ")
	b[0x3c] = 0x40
	copy(b[0x40:], "PE\x00\x00")
	le.PutUint16(b[0x44:], machine)
	le.PutUint16(b[0x54:], 240)
	le.PutUint16(b[0x58:], 0x20b)
	le.PutUint32(b[0x58+32:], 0x200)
	le.PutUint32(b[0x58+36:], 0x200)
	le.PutUint32(b[0x58+60:], 0x400)
	le.PutUint32(b[0x58+108:], 16)
	return b
}

func TestInstalledKernel(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for release, machine := range map[string]uint16{
		"6.1.0-9-amd64": efiAMD64, "6.1.0-10-amd64": efiAMD64, "6.1.0-11-arm64": efiARM64, "6.12.0-bare-amd64": efiAMD64,
	} {
		writeFile(t, root, "boot/vmlinuz-"+release, efiProgram(machine))
		if !strings.Contains(release, "bare") {
			writeFile(t, root, "lib/modules/"+release+"/modules.builtin", nil)
		}
	}
	for _, c := range []struct{ running, arch, want string }{
		{"", "amd64", "6.1.0-10-amd64"}, {"6.1.0-9-amd64", "amd64", "6.1.0-9-amd64"},
		{"6.12.0-bare-amd64", "amd64", "6.1.0-10-amd64"},
		{"6.1.0-9-amd64", "arm64", "6.1.0-11-arm64"},
	} {
		if k, err := installedKernel(root, c.running, c.arch); err != nil || k.Release != c.want {
			t.Errorf("running %q on %s: %+v, %v", c.running, c.arch, k, err)
		}
	}
	if k, err := installedKernel(t.TempDir(), "", "amd64"); err == nil {
		t.Errorf("none there, but %+v", k)
	}
	if k, err := KernelAt(filepath.Join(root, "boot/vmlinuz-6.12.0-bare-amd64"), ""); err == nil {
		t.Errorf("no modules, but %+v", k)
	}
	modules := filepath.Join(root, "lib/modules/6.1.0-9-amd64")
	k, err := KernelAt(filepath.Join(root, "boot/vmlinuz-6.12.0-bare-amd64"), modules)
	if err != nil || k.ModulesDir != modules || k.Release != "6.1.0-9-amd64" {
		t.Errorf("modules named: %+v, %v", k, err)
	}
}
