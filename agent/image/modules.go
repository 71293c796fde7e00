package image

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// DefaultModules are the modules a laboratory machine needs: disk, network, entropy, firmware variables, the
// power button, and the packet filter that network policies are written in.
func DefaultModules() []string {
	return []string{
		"virtio_pci", "virtio_blk", "virtio_net", "virtio_rng", "ext4", "efivarfs", "button", "evdev",
		"nf_tables", "nft_ct", "nft_reject_inet", "nft_limit",
	}
}

type module struct {
	name string
	data []byte
}

// resolveModules reads the wanted modules and what they depend on, each after its dependencies. Modules that
// are built into the kernel are left out. The dependencies come from the modules themselves: the file
// modules.dep is made when a kernel package is configured, and ours is only unpacked.
func resolveModules(dir string, wanted []string) ([]module, error) {
	idx, err := indexModules(dir)
	if err != nil {
		return nil, err
	}
	r := resolver{idx: idx, seen: map[string]bool{}}
	for _, name := range wanted {
		if err := r.add(name); err != nil {
			return nil, err
		}
	}
	return r.order, nil
}

type index struct {
	paths   map[string]string
	builtin map[string]bool
}

func indexModules(dir string) (index, error) {
	idx := index{paths: map[string]string{}, builtin: map[string]bool{}}
	list, err := os.ReadFile(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return idx, fmt.Errorf("read list of built-in modules: %w", err)
	}
	for _, p := range strings.Fields(string(list)) {
		idx.builtin[moduleName(p)] = true
	}
	err = filepath.WalkDir(filepath.Join(dir, "kernel"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(d.Name(), ".ko") {
			idx.paths[moduleName(path)] = path
		}
		return err
	})
	return idx, err
}

// moduleName gives the name that depends= uses: the file name without suffix, and with underscores.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

type resolver struct {
	idx   index
	seen  map[string]bool
	order []module
}

func (r *resolver) add(name string) error {
	if r.idx.builtin[name] || r.seen[name] {
		return nil
	}
	r.seen[name] = true
	path, ok := r.idx.paths[name]
	if !ok {
		return fmt.Errorf("no module %s", name)
	}
	data, err := readModule(path)
	if err != nil {
		return fmt.Errorf("read module %s: %w", name, err)
	}
	deps, err := dependencies(data)
	if err != nil {
		return fmt.Errorf("read dependencies of module %s: %w", name, err)
	}
	for _, dep := range deps {
		if err := r.add(dep); err != nil {
			return fmt.Errorf("for module %s: %w", name, err)
		}
	}
	r.order = append(r.order, module{name: name, data: data})
	return nil
}

// readModule unpacks compressed modules: not every kernel can do it itself.
func readModule(path string) ([]byte, error) {
	tool, ok := map[string]string{".ko": "", ".xz": "xz", ".zst": "zstd"}[filepath.Ext(path)]
	switch {
	case !ok:
		return nil, fmt.Errorf("unknown suffix of %s", path)
	case tool == "":
		return os.ReadFile(path)
	default:
		return exec.Command(tool, "-dc", path).Output()
	}
}

// dependencies reads "depends=a,b" in the .modinfo section: strings that end with a zero byte.
func dependencies(ko []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(ko))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("no .modinfo section")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for field := range strings.SplitSeq(string(info), "\x00") {
		if list, ok := strings.CutPrefix(field, "depends="); ok && list != "" {
			return strings.Split(strings.ReplaceAll(list, "-", "_"), ","), nil
		}
	}
	return nil, nil
}
