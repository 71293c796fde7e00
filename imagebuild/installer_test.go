package imagebuild

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/ingot-metal/ingot/internal/imagelayout"
	"github.com/ingot-metal/ingot/internal/uki"
)

// efiProgram has the headers of an EFI program and nothing to run: a stub or a kernel as far as a builder sees.
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

const (
	efiAMD64 = 0x8664
	efiARM64 = 0xaa64
)

func installerConfig(t *testing.T, agent string, machine uint16) InstallerConfig {
	t.Helper()
	dir := t.TempDir()
	k := testKernel(t)
	k.Image = writeFile(t, dir, "vmlinuz", append(efiProgram(machine), "kernel"...))
	return InstallerConfig{
		Agent: agent, Kernel: k, Arch: map[uint16]string{efiAMD64: "amd64", efiARM64: "arm64"}[machine],
		Stub: writeFile(t, dir, "stub", efiProgram(machine)), Dir: filepath.Join(dir, "out"),
	}
}

func TestInstallerIsReproducible(t *testing.T) {
	t.Parallel()
	agent := writeFile(t, t.TempDir(), "agent", object(t, "", elf.PT_LOAD))
	var first map[string]File
	for range 2 {
		m, err := Installer(t.Context(), installerConfig(t, agent, efiAMD64))
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = m.Files
		}
		for _, name := range []string{KernelFile, InitrdFile, UKIFile} {
			if a, b := first[name], m.Files[name]; a.SHA256 != b.SHA256 || a.Size == 0 {
				t.Errorf("%s: %+v and %+v", name, a, b)
			}
		}
	}
}

// TestInstallerForAnotherArchitecture builds a program that runs as process 1 of a machine.
func TestInstallerForAnotherArchitecture(t *testing.T) {
	t.Parallel()
	agent := filepath.Join(t.TempDir(), "guest")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", agent, "../lab/vm/testdata/guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cfg := installerConfig(t, agent, efiARM64)
	m, err := Installer(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	checkManifest(t, cfg.Dir, m)
	image, err := os.ReadFile(filepath.Join(cfg.Dir, UKIFile))
	if err != nil {
		t.Fatal(err)
	}
	initrd, err := uki.Contents(image, ".initrd")
	if err != nil {
		t.Fatal(err)
	}
	checkInitrd(t, initrd, agent)
	cfg.Arch = "amd64"
	if _, err := Installer(t.Context(), cfg); !errors.Is(err, ErrWrongArch) {
		t.Errorf("an arm64 binary as amd64: %v", err)
	}
}

// checkManifest compares it with the files, and with its own file.
func checkManifest(t *testing.T, dir string, m Manifest) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	var written Manifest
	if err := json.Unmarshal(text, &written); err != nil || written.Arch != "arm64" || written.Release != "test" ||
		len(written.Files) != 3 {
		t.Errorf("manifest %s (%v)", text, err)
	}
	for name, f := range m.Files {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		if hex.EncodeToString(sum[:]) != f.SHA256 || int64(len(data)) != f.Size || written.Files[name].SHA256 != f.SHA256 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	room := written.Files[UKIFile].Cmdline
	if room == nil || room.Size != uki.CmdlineBytes {
		t.Errorf("room for the command line: %+v", room)
	}
}

// checkInitrd looks for the agent and for a state file system that a checker accepts.
func checkInitrd(t *testing.T, packed []byte, agent string) {
	t.Helper()
	archive := unzstd(t, packed)
	program, err := os.ReadFile(agent)
	if err != nil {
		t.Fatal(err)
	}
	if listed(t, archive, "/init") != string(program) {
		t.Error("/init is not the agent")
	}
	for name, c := range map[string]struct {
		size int64
		says string
	}{
		imagelayout.StateTemplate: {32 << 20, "Filesystem volume name:   " + imagelayout.StateLabel},
		imagelayout.DataTemplate:  {128 << 20, "Filesystem volume name:   <none>"},
	} {
		disk := writeFile(t, t.TempDir(), "disk", unzstd(t, []byte(listed(t, archive, name))))
		if info, err := os.Stat(disk); err != nil || info.Size() != c.size {
			t.Errorf("%s: %+v, %v", name, info, err)
		}
		if out, err := exec.Command("/usr/sbin/e2fsck", "-fn", disk).CombinedOutput(); err != nil {
			t.Errorf("e2fsck: %v: %s", err, out)
		}
		out, err := exec.Command("/usr/sbin/dumpe2fs", "-h", disk).Output()
		if err != nil || !strings.Contains(string(out), c.says) {
			t.Errorf("dumpe2fs: %v: %s", err, out)
		}
	}
}

func unzstd(t *testing.T, packed []byte) []byte {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	var out bytes.Buffer
	if _, err := z.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestInstallerFormats(t *testing.T) {
	t.Parallel()
	agent := writeFile(t, t.TempDir(), "agent", object(t, "", elf.PT_LOAD))
	for format, want := range map[string]string{
		FormatSplit: "initrd kernel manifest.json", FormatUKI: "manifest.json uki.efi",
		FormatAll: "initrd kernel manifest.json uki.efi",
	} {
		cfg := installerConfig(t, agent, efiAMD64)
		cfg.Format = format
		if _, err := Installer(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		files, err := os.ReadDir(cfg.Dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range files {
			names = append(names, f.Name())
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s makes %q", format, got)
		}
	}
}

func TestInstallerRefuses(t *testing.T) {
	t.Parallel()
	agent := writeFile(t, t.TempDir(), "agent", object(t, "", elf.PT_LOAD))
	for name, c := range map[string]struct {
		change func(*InstallerConfig)
		says   string
	}{
		"format":    {func(c *InstallerConfig) { c.Format = "floppy" }, "floppy"},
		"no stub":   {func(c *InstallerConfig) { c.Stub = "/nowhere" }, "systemd-boot-efi"},
		"no kernel": {func(c *InstallerConfig) { c.Kernel.Image = "/nowhere" }, "read kernel"},
		"other kernel": {func(c *InstallerConfig) {
			writeFile(t, filepath.Dir(c.Kernel.Image), "vmlinuz",
				efiProgram(efiARM64))
		}, "kernel is for arm64"},
		"architecture": {func(c *InstallerConfig) { c.Arch = "vax" }, "vax"},
	} {
		cfg := installerConfig(t, agent, efiAMD64)
		c.change(&cfg)
		if _, err := Installer(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want one with %q", name, err, c.says)
		}
		if _, err := os.Stat(filepath.Join(cfg.Dir, ManifestFile)); err == nil {
			t.Errorf("%s: there is a manifest", name)
		}
	}
}
