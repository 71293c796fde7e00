package imagebuild

import (
	"bytes"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/debian"
	"github.com/ingot-metal/ingot/internal/ext4"
	"github.com/ingot-metal/ingot/internal/imagelayout"
	"github.com/ingot-metal/ingot/internal/uki"
)

// Names of an installer's files. They are also the last parts of the boot URLs.
const (
	KernelFile   = "kernel"
	InitrdFile   = "initrd"
	UKIFile      = "uki.efi"
	ManifestFile = "manifest.json"
)

// Formats of an installer.
const (
	// FormatSplit is a kernel and an initramfs, for BIOS, iPXE and kexec.
	FormatSplit = "kernel+initrd"
	// FormatUKI is a unified kernel image, which UEFI firmware loads by itself.
	FormatUKI = "uki"
	// FormatAll is both.
	FormatAll = "all"
)

// InstallerConfig is the content of an installer.
type InstallerConfig struct {
	// Agent is the path of the static binary that becomes /init.
	Agent string
	// Kernel is of the architecture Arch, as Go names it: amd64 or arm64.
	Kernel debian.Kernel
	Arch   string
	// Format is FormatAll when empty.
	Format string
	// Compression of the initramfs is Zstd when empty.
	Compression Compression
	// FirmwareDir is as in Config.
	FirmwareDir string
	// Stub is the path of systemd's EFI stub; DefaultStub of the architecture when empty.
	Stub string
	// Cmdline is the unified kernel image's command line until the site's boot server replaces it. It carries no secrets.
	Cmdline string
	// Dir gets the files. It is made when it isn't there.
	Dir string
}

// Manifest describes an installer; it stands beside its files.
type Manifest struct {
	Kind    string          `json:"kind"` // "installer"
	Arch    string          `json:"arch"`
	Release string          `json:"kernel_release"`
	Files   map[string]File `json:"files"` // by name
}

// File is one file of an installer.
type File struct {
	Size   int64  `json:"size"`   // bytes
	SHA256 string `json:"sha256"` // 64 hex digits
	// Cmdline is the room for the command line in a unified kernel image, to be filled as in package uki.
	Cmdline *CmdlineRoom `json:"cmdline,omitempty"`
}

// CmdlineRoom is a part of a file, in bytes.
type CmdlineRoom struct {
	Offset int64 `json:"offset"`
	Size   int64 `json:"size"`
}

// ErrWrongArch is returned for a kernel or a binary of another architecture.
var ErrWrongArch = errors.New("wrong architecture")

// Installer builds an installer. The same inputs give the same bytes.
func Installer(ctx context.Context, cfg InstallerConfig) (Manifest, error) {
	cfg.setDefaults()
	if !slices.Contains([]string{FormatSplit, FormatUKI, FormatAll}, cfg.Format) {
		return Manifest{}, fmt.Errorf("unknown format %q: not %s, %s or %s", cfg.Format, FormatSplit, FormatUKI, FormatAll)
	}
	kernel, initrd, err := cfg.parts(ctx)
	if err != nil {
		return Manifest{}, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return Manifest{}, fmt.Errorf("make directory: %w", err)
	}
	m := Manifest{Kind: "installer", Arch: cfg.Arch, Release: cfg.Kernel.Release, Files: map[string]File{}}
	if cfg.Format != FormatUKI {
		err = errors.Join(m.add(cfg.Dir, KernelFile, kernel), m.add(cfg.Dir, InitrdFile, initrd))
	}
	if err == nil && cfg.Format != FormatSplit {
		err = m.addUKI(cfg, kernel, initrd)
	}
	if err != nil {
		return Manifest{}, err
	}
	return m, m.write(cfg.Dir)
}

func (cfg *InstallerConfig) setDefaults() {
	if cfg.Format == "" {
		cfg.Format = FormatAll
	}
	if cfg.Compression == "" {
		cfg.Compression = Zstd
	}
	if cfg.Stub == "" {
		cfg.Stub = DefaultStub(cfg.Arch)
	}
}

// parts returns the kernel and the initramfs.
func (cfg InstallerConfig) parts(ctx context.Context) (kernel, initrd []byte, err error) {
	if kernel, err = os.ReadFile(cfg.Kernel.Image); err != nil {
		return nil, nil, fmt.Errorf("read kernel: %w", err)
	}
	if err := checkArch(cfg.Agent, kernel, cfg.Arch); err != nil {
		return nil, nil, err
	}
	state, err := ext4.StateTemplate(ctx)
	if err != nil {
		return nil, nil, err
	}
	data, err := ext4.DataTemplate(ctx)
	if err != nil {
		return nil, nil, err
	}
	machine := MachineConfig(cfg.Agent, cfg.Kernel, cfg.FirmwareDir, cfg.Compression, map[string][]byte{
		imagelayout.StateTemplate: state, imagelayout.DataTemplate: data,
	})
	machine.Hardware = append(machine.Hardware, onDemandModules()...)
	initrd, err = Initramfs(machine)
	return kernel, initrd, err
}

// MachineConfig is the initramfs of a real machine: DefaultModules and ExtraModules as far as the kernel has them,
// and drivers for HardwareModules.
func MachineConfig(agent string, k debian.Kernel, firmwareDir string, c Compression, files map[string][]byte) Config {
	wanted := slices.Concat(DefaultModules(), ExtraModules())
	if idx, err := indexModules(k.ModulesDir); err == nil { // Initramfs reports the error.
		wanted = idx.has(wanted)
	}
	return Config{
		Init: agent, Kernel: k, Modules: wanted, Hardware: HardwareModules(), FirmwareDir: firmwareDir, Compression: c,
		Files: files,
	}
}

func (m *Manifest) addUKI(cfg InstallerConfig, kernel, initrd []byte) error {
	stub, err := os.ReadFile(cfg.Stub)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read EFI stub (package systemd-boot-efi of the architecture %s): %w", cfg.Arch, err)
	}
	if err != nil {
		return fmt.Errorf("read EFI stub: %w", err)
	}
	image, err := uki.Build(uki.Parts{
		Stub: stub, Linux: kernel, Initrd: initrd, Cmdline: cfg.Cmdline, Release: cfg.Kernel.Release,
		OSRelease: "ID=ingot-installer\nPRETTY_NAME=\"Ingot installer\"\nVERSION_ID=\"" + cfg.Kernel.Release + "\"\n",
	})
	if err != nil {
		return fmt.Errorf("make unified kernel image: %w", err)
	}
	if err := m.add(cfg.Dir, UKIFile, image); err != nil {
		return err
	}
	span, err := uki.Cmdline(bytes.NewReader(image))
	f := m.Files[UKIFile]
	f.Cmdline = &CmdlineRoom{Offset: span.Offset, Size: span.Size}
	m.Files[UKIFile] = f
	return err
}

func (m *Manifest) add(dir, name string, data []byte) error {
	sum := sha256.Sum256(data)
	m.Files[name] = File{Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
	return replaceFile(filepath.Join(dir, name), data, 0o644)
}

// write comes last: a manifest that is there describes files that are.
func (m *Manifest) write(dir string) error {
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return replaceFile(filepath.Join(dir, ManifestFile), append(data, '\n'), 0o644)
}

// DefaultStub is where Debian's systemd-boot-efi has the EFI stub of an architecture.
func DefaultStub(arch string) string {
	return "/usr/lib/systemd/boot/efi/linux" + efiArch(arch) + ".efi.stub"
}

// efiArch is the architecture as UEFI names it in file names (UEFI 2.10, 3.5.1.1).
func efiArch(arch string) string {
	return map[string]string{"amd64": "x64", "arm64": "aa64"}[arch]
}

// checkArch sees to it that program and kernel are of the architecture. A kernel without an EFI stub has no
// recognizable architecture.
func checkArch(program string, kernel []byte, arch string) error {
	f, err := openELF(program)
	if err != nil {
		return fmt.Errorf("read %s: %w", program, err)
	}
	want, ok := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]
	if !ok {
		return fmt.Errorf("%w: %q is not amd64 or arm64", ErrWrongArch, arch)
	}
	if f.Machine != want {
		return fmt.Errorf("%w: %s is for %s, not %s", ErrWrongArch, program, strings.TrimPrefix(f.Machine.String(), "EM_"),
			arch)
	}
	if got, err := uki.Machine(kernel); err == nil && got != arch {
		return fmt.Errorf("%w: the kernel is for %s, not %s", ErrWrongArch, got, arch)
	}
	return nil
}
