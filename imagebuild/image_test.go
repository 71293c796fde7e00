package imagebuild

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/ingot-metal/ingot/internal/imagelayout"
)

func build(t *testing.T, change func(*Config)) ([]byte, error) {
	t.Helper()
	dir := t.TempDir()
	cfg := Config{
		Init:   writeFile(t, dir, "init", object(t, "", elf.PT_LOAD)),
		Kernel: testKernel(t), Modules: []string{"top"}, Out: filepath.Join(dir, "initrd"),
	}
	if change != nil {
		change(&cfg)
	}
	if err := Build(cfg); err != nil {
		return nil, err
	}
	return os.ReadFile(cfg.Out)
}

func TestBuildPutsEverythingInPlace(t *testing.T) {
	t.Parallel()
	archive, err := build(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]unpacked{}
	inodes := map[uint64]bool{}
	for _, f := range unpack(t, archive) {
		parent := filepath.Dir(f.name)
		if _, ok := byName[parent]; parent != "." && !ok {
			t.Errorf("%s comes before its directory", f.name)
		}
		if f.mtime != 0 || inodes[f.inode] {
			t.Errorf("%s: time %d, inode %d", f.name, f.mtime, f.inode)
		}
		byName[f.name], inodes[f.inode] = f, true
	}
	if got := byName["init"]; got.mode != 0o100755 || got.data != string(object(t, "", elf.PT_LOAD)) {
		t.Errorf("init: mode %o, %d bytes", got.mode, len(got.data))
	}
	if got := byName["dev/console"]; got.mode != 0o020600 || got.major != 5 || got.minor != 1 {
		t.Errorf("dev/console: %+v", got)
	}
	list := byName[strings.TrimPrefix(imagelayout.ModuleList, "/")].data
	for _, path := range strings.Fields(list) {
		if byName[strings.TrimPrefix(path, "/")].data == "" {
			t.Errorf("%s is listed and not there", path)
		}
	}
	names := strings.Fields(strings.NewReplacer("/lib/modules/", "", ".ko", "").Replace(list))
	if got := strings.Join(names, " "); got != "base left_one right top" {
		t.Errorf("load order %q", got)
	}
}

func TestBuildIsReproducible(t *testing.T) {
	t.Parallel()
	for _, c := range []Compression{None, Gzip, Zstd} {
		choose := func(cfg *Config) { cfg.Compression = c }
		first, err := build(t, choose)
		if err != nil {
			t.Fatal(err)
		}
		second, err := build(t, choose)
		if err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s: two builds differ (%v)", c, err)
		}
	}
}

func TestCompressedHoldsTheSameArchive(t *testing.T) {
	t.Parallel()
	plain, err := build(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	for c, unpack := range map[Compression]func(io.Reader) (io.Reader, error){
		Gzip: func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
		Zstd: func(r io.Reader) (io.Reader, error) { return zstd.NewReader(r) },
	} {
		packed, err := build(t, func(cfg *Config) { cfg.Compression = c })
		if err != nil {
			t.Fatal(err)
		}
		r, err := unpack(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, plain) || len(packed) >= len(plain) {
			t.Errorf("%s: %d bytes unpacked to %d, want %d (%v)", c, len(packed), len(got), len(plain), err)
		}
	}
}

func TestFilesComeWithTheirDirectories(t *testing.T) {
	t.Parallel()
	archive, err := build(t, func(c *Config) {
		c.Files = map[string][]byte{"lib/ingot/a": []byte("A"), "/lib/ingot/deep/b": []byte("B")}
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range unpack(t, archive) {
		if strings.HasPrefix(f.name, "lib/ingot") {
			names = append(names, f.name+"="+f.data)
		}
	}
	if got := strings.Join(names, " "); got != "lib/ingot= lib/ingot/deep= lib/ingot/deep/b=B lib/ingot/a=A" {
		t.Errorf("got %q", got)
	}
}

// listed returns the content of a list in the image.
func listed(t *testing.T, archive []byte, path string) string {
	t.Helper()
	for _, f := range unpack(t, archive) {
		if "/"+f.name == path {
			return f.data
		}
	}
	t.Fatalf("no %s", path)
	return ""
}

func TestHardwareIsListedWithItsDevices(t *testing.T) {
	t.Parallel()
	archive, err := build(t, func(c *Config) {
		c.Modules = []string{"base", "right size=1 name=x"}
		c.Hardware = []string{"card", "absent", "broken", "ext4", "top", "right"}
		c.FirmwareDir = t.TempDir()
		writeFile(t, c.FirmwareDir, "maker/card.bin", []byte("FW"))
	})
	if err != nil {
		t.Fatal(err)
	}
	const always = "/lib/modules/base.ko\n/lib/modules/right.ko size=1 name=x\n"
	if got := listed(t, archive, imagelayout.ModuleList); got != always {
		t.Errorf("inserted always: %q", got)
	}
	const drivers = "/lib/modules/base.ko /lib/modules/left_one.ko /lib/modules/crc_generic.ko " +
		"/lib/modules/card.ko\n\tpci:v1*\n\tpci:v2*\n"
	if got := listed(t, archive, imagelayout.HardwareList); got != drivers {
		t.Errorf("drivers: %q, want %q", got, drivers)
	}
	if got := listed(t, archive, "/lib/firmware/maker/card.bin"); got != "FW" {
		t.Errorf("firmware %q", got)
	}
}

func TestBuildRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"unknown module":      {func(c *Config) { c.Modules = []string{"nothing"} }, "no module nothing"},
		"missing dependency":  {func(c *Config) { c.Modules = []string{"broken"} }, "for module broken: no module absent"},
		"unknown compression": {func(c *Config) { c.Compression = "lha" }, `"lha"`},
		"no kernel":           {func(c *Config) { c.Kernel.ModulesDir = "/nowhere" }, "modules.builtin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := build(t, c.change); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error %v, want one with %q", err, c.says)
			}
		})
	}
}

func TestBuildRefusesDynamicBinary(t *testing.T) {
	t.Parallel()
	_, err := build(t, func(c *Config) { c.Init = writeFile(t, t.TempDir(), "init", object(t, "", elf.PT_INTERP)) })
	if !errors.Is(err, ErrNotStatic) {
		t.Errorf("error %v, want ErrNotStatic", err)
	}
}

func TestFailedBuildLeavesTheOldImage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	out := writeFile(t, dir, "initrd", []byte("old"))
	if _, err := build(t, func(c *Config) { c.Out, c.Compression = out, "lha" }); err == nil {
		t.Fatal("no error")
	}
	files, err := os.ReadDir(dir)
	if data, readErr := os.ReadFile(out); string(data) != "old" || len(files) != 1 {
		t.Errorf("%d files, content %q (%v, %v)", len(files), data, err, readErr)
	}
}

// TestDisksBehindControllersOfServersAreFound: drivers by their names in Linux (drivers/pci/controller/vmd.c,
// drivers/scsi/mpi3mr, qla2xxx and lpfc), for NVMe behind Intel VMD, Broadcom's newer RAID controllers, and Fibre
// Channel.
func TestDisksBehindControllersOfServersAreFound(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"nvme", "vmd", "ahci", "megaraid_sas", "mpt3sas", "mpi3mr", "qla2xxx", "lpfc"} {
		if !slices.Contains(HardwareModules(), name) {
			t.Errorf("installers have no %s", name)
		}
	}
}
