package imagebuild

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// module is one that goes into an image.
type module struct {
	name string
	data []byte
	// aliases are patterns of the devices that it is for, firmware the files that it may ask for.
	aliases, firmware []string
	// needs are the modules that must be inserted before it, in their order.
	needs []*module
}

func (m *module) path() string { return "/lib/modules/" + m.name + ".ko" }

// moduleSet are the modules of an image. Each stands after its dependencies.
type moduleSet struct {
	all, always, hardware []*module
	// parameters are for modules of always, by name.
	parameters map[string]string
}

// loadOrder lists the paths of the modules to be inserted in any case, in the form of imagelayout.ModuleList.
func (s moduleSet) loadOrder() string {
	var b strings.Builder
	for _, m := range s.always {
		b.WriteString(strings.TrimSpace(m.path()+" "+s.parameters[m.name]) + "\n")
	}
	return b.String()
}

// hardwareList is in the form of imagelayout.HardwareList.
func (s moduleSet) hardwareList() string {
	var b strings.Builder
	for _, m := range s.hardware {
		for _, need := range m.needs {
			b.WriteString(need.path() + " ")
		}
		b.WriteString(m.path() + "\n")
		for _, alias := range m.aliases {
			b.WriteString("\t" + alias + "\n")
		}
	}
	return b.String()
}

// resolveModules reads the modules, and what they depend on. Modules that are built into the kernel are left out,
// and so is hardware that the kernel knows nothing of. The dependencies come from the modules themselves: the file
// modules.dep is made when a kernel package is configured, and ours may be only unpacked.
func resolveModules(dir string, wanted, hardware []string) (moduleSet, error) {
	idx, err := indexModules(dir)
	if err != nil {
		return moduleSet{}, err
	}
	r := resolver{idx: idx, seen: map[string]*module{}}
	set := moduleSet{parameters: map[string]string{}}
	for _, line := range wanted {
		name, parameters, _ := strings.Cut(line, " ")
		if _, err := r.add(name); err != nil {
			return set, err
		}
		set.parameters[name] = parameters
	}
	set.always = slices.Clone(r.order)
	for _, name := range hardware {
		m, err := r.add(name)
		switch {
		case errors.Is(err, errNoModule):
			continue
		case err != nil:
			return set, err
		}
		if m != nil && len(m.aliases) > 0 && !slices.Contains(set.always, m) {
			set.hardware = append(set.hardware, m)
		}
	}
	set.all = r.order
	return set, nil
}

// has returns those of the names that the kernel has, built in or not. Parameters may follow them.
func (idx index) has(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(line string) bool {
		name, _, _ := strings.Cut(line, " ")
		return !idx.builtin[name] && idx.paths[name] == ""
	})
}

var errNoModule = errors.New("no module")

type resolver struct {
	idx   index
	seen  map[string]*module
	order []*module
}

// add returns nil for a module that is built in. A module that lacks a dependency is not added.
func (r *resolver) add(name string) (*module, error) {
	if m, ok := r.seen[name]; ok || r.idx.builtin[name] {
		return m, nil
	}
	path, ok := r.idx.paths[name]
	if !ok {
		return nil, fmt.Errorf("%w %s", errNoModule, name)
	}
	data, err := readModule(path)
	if err != nil {
		return nil, fmt.Errorf("read module %s: %w", name, err)
	}
	info, err := modinfo(data)
	if err != nil {
		return nil, fmt.Errorf("read dependencies of module %s: %w", name, err)
	}
	m := &module{name: name, data: data, aliases: info["alias"], firmware: info["firmware"]}
	r.seen[name] = m
	if err := r.addNeeds(m, info["depends"]); err != nil {
		delete(r.seen, name)
		return nil, fmt.Errorf("for module %s: %w", name, err)
	}
	if err := r.addNeeds(m, r.idx.first(before(info["softdep"]))); err != nil {
		return nil, fmt.Errorf("for module %s: %w", name, err)
	}
	r.order = append(r.order, m)
	return m, nil
}

// first returns the modules behind names of softdep, as far as there are any. A name such as crc32c is an algorithm;
// the module that works on every processor is called crc32c_generic.
func (idx index) first(names []string) []string {
	var out []string
	for _, name := range names {
		name = strings.ReplaceAll(name, "-", "_")
		out = append(out, idx.has([]string{name, name + "_generic"})...)
	}
	return out
}

// before reads "softdep=pre: a b post: c": what should be inserted first if there is such a module.
func before(softdeps []string) []string {
	var names []string
	for _, text := range softdeps {
		in := false
		for _, word := range strings.Fields(text) {
			if strings.HasSuffix(word, ":") {
				in = word == "pre:"
			} else if in {
				names = append(names, word)
			}
		}
	}
	return names
}

// addNeeds takes lists with commas, as in "depends=a,b".
func (r *resolver) addNeeds(m *module, depends []string) error {
	for _, dep := range strings.FieldsFunc(strings.Join(depends, ","), func(c rune) bool { return c == ',' }) {
		need, err := r.add(strings.ReplaceAll(dep, "-", "_"))
		if err != nil {
			return err
		}
		if need == nil {
			continue
		}
		for _, n := range append(slices.Clone(need.needs), need) {
			if !slices.Contains(m.needs, n) {
				m.needs = append(m.needs, n)
			}
		}
	}
	return nil
}

// firmwareEntries finds the firmware that modules for hardware name. Most is for obsolete cards, so missing files are
// left out. Compressed files are left out too: kernels differ in what they unpack.
func firmwareEntries(dir string, mods moduleSet) ([]entry, error) {
	if dir == "" {
		return nil, nil
	}
	var names []string
	for _, m := range mods.all {
		names = append(names, m.firmware...)
	}
	slices.Sort(names)
	var entries []entry
	for _, name := range slices.Compact(names) {
		if !filepath.IsLocal(name) {
			return nil, fmt.Errorf("firmware %q leads out of its directory", name)
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read firmware: %w", err)
		}
		entries = append(entries, file("lib/firmware/"+name, data))
	}
	return entries, nil
}
