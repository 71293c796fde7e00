// Package imagebuild builds what machines boot from: an initramfs whose only program is a static binary, the kernel it
// goes with, and both in one as a unified kernel image. Nothing here needs root, loop devices or mounts. The same
// inputs give the same bytes.
package imagebuild

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/debian"
	"github.com/ingot-metal/ingot/internal/imagelayout"
)

// Config is the content of an initramfs.
type Config struct {
	// Init is the path of the static linux binary that becomes /init.
	Init string
	// Kernel has the modules.
	Kernel debian.Kernel
	// Modules are the names of the modules that are inserted at boot, each optionally followed by a space and parameters.
	// Their dependencies are added. Nil means DefaultModules.
	Modules []string
	// Hardware are the names of modules that are inserted when the machine has a device that they are for. Those
	// that the kernel doesn't have are left out.
	Hardware []string
	// FirmwareDir is where the firmware stands that modules of Hardware name; empty for none.
	FirmwareDir string
	// Files are further files: path without a slash before it, to content. They get mode 0644.
	Files map[string][]byte
	// Compression is None when empty.
	Compression Compression
	// Out is the file to write. It is replaced only when the new one is complete.
	Out string
}

// ErrNotStatic is returned for a binary with a dynamic loader, which the initramfs doesn't have.
var ErrNotStatic = errors.New("binary is not static (build it with CGO_ENABLED=0)")

// Build writes the initramfs described by cfg.
func Build(cfg Config) error {
	data, err := Initramfs(cfg)
	if err != nil {
		return err
	}
	return replaceFile(cfg.Out, data, 0o644)
}

// Initramfs returns the content of the initramfs described by cfg. Out is not used.
func Initramfs(cfg Config) ([]byte, error) {
	entries, err := contents(cfg)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if err := pack(&buf, entries, cfg.Compression); err != nil {
		return nil, fmt.Errorf("pack initramfs: %w", err)
	}
	return buf.Bytes(), nil
}

func contents(cfg Config) ([]entry, error) {
	if err := checkStatic(cfg.Init); err != nil {
		return nil, fmt.Errorf("check %s: %w", cfg.Init, err)
	}
	program, err := os.ReadFile(cfg.Init)
	if err != nil {
		return nil, fmt.Errorf("read init: %w", err)
	}
	mods, err := moduleEntries(cfg)
	if err != nil {
		return nil, err
	}
	entries := append(skeleton(), entry{name: "init", mode: modeFile | 0o755, data: program})
	entries = append(entries, mods...)
	for _, path := range slices.Sorted(maps.Keys(cfg.Files)) {
		entries = append(entries, file(path, cfg.Files[path]))
	}
	return withDirs(entries), nil
}

// withDirs puts the directories that are missing before the first file in them, and leaves the order as it is.
func withDirs(entries []entry) []entry {
	have := map[string]bool{".": true}
	var out []entry
	var need func(dir string)
	need = func(dir string) {
		if !have[dir] {
			need(filepath.Dir(dir))
			have[dir] = true
			out = append(out, entry{name: dir, mode: modeDir | 0o755})
		}
	}
	for _, e := range entries {
		need(filepath.Dir(e.name))
		have[e.name] = true
		out = append(out, e)
	}
	return out
}

// skeleton is the part that is the same in every image. /dev/console must be there before devtmpfs is
// mounted: the kernel opens it for init, and an init without it has no standard output.
func skeleton() []entry {
	var entries []entry
	for _, dir := range []string{
		"dev", "etc", "lib", "lib/modules", "proc", "run", "sys", "var", "var/lib", "var/lib/ingot",
	} {
		entries = append(entries, entry{name: dir, mode: modeDir | 0o755})
	}
	return append(entries,
		entry{name: "root", mode: modeDir | 0o700},
		entry{name: "tmp", mode: modeDir | 0o1777},
		entry{name: "dev/console", mode: modeChar | 0o600, major: 5, minor: 1},
		entry{name: "dev/null", mode: modeChar | 0o666, major: 1, minor: 3},
		entry{name: "dev/kmsg", mode: modeChar | 0o600, major: 1, minor: 11},
	)
}

func moduleEntries(cfg Config) ([]entry, error) {
	wanted := cfg.Modules
	if wanted == nil {
		wanted = DefaultModules()
	}
	mods, err := resolveModules(cfg.Kernel.ModulesDir, wanted, cfg.Hardware)
	if err != nil {
		return nil, fmt.Errorf("resolve modules of kernel %s: %w", cfg.Kernel.Release, err)
	}
	var entries []entry
	for _, m := range mods.all {
		entries = append(entries, file(m.path(), m.data))
	}
	entries = append(entries, file(imagelayout.ModuleList, []byte(mods.loadOrder())),
		file(imagelayout.HardwareList, []byte(mods.hardwareList())))
	firmware, err := firmwareEntries(cfg.FirmwareDir, mods)
	if err != nil {
		return nil, err
	}
	return append(entries, firmware...), nil
}

// file takes a path with or without a slash before it.
func file(path string, data []byte) entry {
	return entry{name: strings.TrimPrefix(path, "/"), mode: modeFile | 0o644, data: data}
}

func checkStatic(path string) error {
	f, err := openELF(path)
	if err != nil {
		return err
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return ErrNotStatic
		}
	}
	return nil
}

// openELF reads the headers only.
func openELF(path string) (*elf.File, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return elf.NewFile(file)
}

// replaceFile writes to a neighbour and renames, so that a machine that boots at the same moment sees the old
// file or the new one.
func replaceFile(path string, data []byte, mode os.FileMode) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	if err := writeAndClose(f, data, mode); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}

func writeAndClose(f *os.File, data []byte, mode os.FileMode) error {
	w := bufio.NewWriter(f)
	_, err := w.Write(data)
	return errors.Join(err, w.Flush(), f.Chmod(mode), f.Close())
}
