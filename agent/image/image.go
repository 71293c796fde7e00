// Package image builds what a laboratory machine boots from: an initramfs whose only program is a static
// binary, the kernel it goes with, and a small persistent disk. Nothing here needs root, loop devices or
// mounts. The same inputs give the same initramfs, byte for byte.
package image

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ingot-metal/ingot/agent/pid1"
)

// Compression says how the initramfs is packed.
type Compression string

const (
	// None is the quickest to boot in an emulated machine, which would spend seconds unpacking.
	None Compression = "none"
	// Gzip is for images that travel over a network.
	Gzip Compression = "gzip"
)

// Config says what goes into an initramfs.
type Config struct {
	// Init is the path of the static linux binary that becomes /init.
	Init string
	// Kernel gives the modules.
	Kernel Kernel
	// Modules are the names of the modules wanted; what they depend on is added. Nil means DefaultModules.
	Modules []string
	// Compression is None when empty.
	Compression Compression
	// Out is the file to write. It is replaced only when the new one is complete.
	Out string
}

// ErrNotStatic says that a binary asks for a dynamic loader, which the initramfs doesn't have.
var ErrNotStatic = errors.New("binary is not static (build it with CGO_ENABLED=0)")

// Build writes the initramfs described by cfg.
func Build(cfg Config) error {
	entries, err := contents(cfg)
	if err != nil {
		return err
	}
	var buf bytes.Buffer
	if err := pack(&buf, entries, cfg.Compression); err != nil {
		return fmt.Errorf("pack initramfs: %w", err)
	}
	return replaceFile(cfg.Out, buf.Bytes(), 0o644)
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
	return append(entries, mods...), nil
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
	files, err := resolveModules(cfg.Kernel.ModulesDir, wanted)
	if err != nil {
		return nil, fmt.Errorf("resolve modules of kernel %s: %w", cfg.Kernel.Release, err)
	}
	var entries []entry
	var list strings.Builder
	for _, m := range files {
		name := "lib/modules/" + m.name + ".ko"
		entries = append(entries, entry{name: name, mode: modeFile | 0o644, data: m.data})
		list.WriteString("/" + name + "\n")
	}
	return append(entries, entry{
		name: strings.TrimPrefix(pid1.ModuleList, "/"), mode: modeFile | 0o644, data: []byte(list.String()),
	}), nil
}

func pack(w io.Writer, entries []entry, c Compression) error {
	switch c {
	case None, "":
		return writeArchive(w, entries)
	case Gzip:
		return packGzip(w, entries)
	default:
		return fmt.Errorf("unknown compression %q", c)
	}
}

// packGzip leaves the time and name fields of the gzip header empty, so that they can't differ.
func packGzip(w io.Writer, entries []entry) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := writeArchive(z, entries); err != nil {
		return err
	}
	return z.Close()
}

func checkStatic(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	f, err := elf.NewFile(file)
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
