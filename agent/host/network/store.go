package network

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/agent/host/textdiff"
)

const (
	// Beside the guard's record, so that both are there at boot or neither.
	appliedFile = "etc/ingot/network/applied.json"
	resolvFile  = "etc/ingot/network/resolv.conf.json" // what resolv.conf was before it was ours
)

// FileHeader begins each file of ours.
const FileHeader = "# Written by the Ingot agent. A change by hand is reported, and refuses the next configuration.\n"

// appliedRecord is the configuration in force, the boot that it was applied on, and the manager that was ordered to
// apply it.
type appliedRecord struct {
	BootID  string `json:"boot_id"`
	Manager string `json:"manager,omitempty"` // "": systemd-networkd, or none where the agent is init
	Config  Config `json:"config"`
}

// applied reads the configuration in force.
func (n *Configurator) applied() (*Config, error) {
	var r appliedRecord
	found, err := n.ReadJSON(appliedFile, &r)
	if err != nil || !found {
		return nil, err
	}
	return &r.Config, nil
}

func (n *Configurator) writeApplied(bootID, manager string, c Config) error {
	return n.WriteJSON(appliedFile, appliedRecord{BootID: bootID, Manager: manager, Config: c})
}

// managerNow returns the manager of the configuration in force; where there is none, the one that would apply c.
func (n *Configurator) managerNow(ctx context.Context, c Config) (Manager, error) {
	var r appliedRecord
	found, err := n.ReadJSON(appliedFile, &r)
	if err != nil {
		return nil, err
	}
	if !found {
		return n.manager(ctx, c)
	}
	return n.managerOf(r.Manager), nil
}

func nameOfManager(m Manager) string {
	if m == nil {
		return ""
	}
	return m.Name()
}

// NetworkForgotten: a manager reads its files at boot; without one the kernel knows what was set since.
func (n *Configurator) NetworkForgotten(context.Context) (bool, error) {
	var r appliedRecord
	found, err := n.ReadJSON(appliedFile, &r)
	return err == nil && !n.RunsSystemd() && (!found || r.BootID != n.BootID()), err
}

// ReadFiles reads the files that match a pattern, by path below the root.
func ReadFiles(s *system.System, pattern string) (map[string]string, error) {
	paths, err := filepath.Glob(s.Path(pattern))
	if err != nil {
		return nil, fmt.Errorf("list network files: %w", err)
	}
	out := map[string]string{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("read network file: %w", err)
		}
		rel, err := filepath.Rel(s.Path(""), p)
		if err != nil {
			return nil, fmt.Errorf("read network file: %w", err)
		}
		out[rel] = string(b)
	}
	return out, nil
}

// writeFiles makes these the manager's files. Each is replaced as a whole, and keeps its mode. A file that is gone
// takes effect only when the manager reads them, so that the order does not matter.
func (n *Configurator) writeFiles(m Manager, want map[string]string) error {
	have, err := m.Files()
	if err != nil {
		return err
	}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		if old, ok := have[path]; ok && old == want[path] {
			continue
		}
		mode := m.Mode()
		if fi, err := os.Stat(n.Path(path)); err == nil {
			mode = fi.Mode().Perm()
		}
		if err := system.ReplaceFileMode(n.Path(path), []byte(want[path]), mode); err != nil {
			return fmt.Errorf("write network file: %w", err)
		}
	}
	for path := range have {
		if _, ok := want[path]; ok || !m.Ours(path) {
			continue
		}
		if err := n.Remove(path); err != nil {
			return err
		}
	}
	if len(have) == 0 {
		return nil
	}
	return system.SyncDir(n.Path(m.Dir()))
}

// diffFiles shows how files differ, one after the other.
func diffFiles(want, have map[string]string) string {
	names := maps.Clone(want)
	maps.Copy(names, have)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		b.WriteString(
			textdiff.Unified("committed/"+name, "host/"+name, textdiff.Lines(want[name]), textdiff.Lines(have[name])),
		)
	}
	return b.String()
}

// before returns the manager's files as they were saved.
func (n *Configurator) before(m Manager, s SavedNetwork) (map[string]string, error) {
	if m == nil {
		return nil, nil
	}
	saved := map[string]string{}
	for path, text := range s.Files {
		if !strings.Contains(path, "/") { // of an older version
			path = m.Dir() + "/" + path
		}
		saved[path] = text
	}
	return m.Before(saved)
}

// restoreFiles puts back what was saved, as much of it as can be. Without before the manager's files stay.
func (n *Configurator) restoreFiles(m Manager, s SavedNetwork, before map[string]string) error {
	errs := []error{n.RemoveHalfWritten()}
	if m != nil && before != nil {
		errs = append(errs, n.writeFiles(m, before))
	}
	if isOurs(n.readSaved("etc/resolv.conf")) {
		if err := n.writeSaved("etc/resolv.conf", s.Resolv); err != nil {
			errs = append(errs, fmt.Errorf("restore resolv.conf: %w", err))
		}
	}
	if s.Applied != nil {
		errs = append(errs, n.writeApplied(s.BootID, s.Manager, *s.Applied))
	} else {
		errs = append(errs, n.Remove(appliedFile))
	}
	return errors.Join(errs...)
}

// HalfWritten returns the files that a killed process, or a machine that went down, was about to rename.
func (n *Configurator) HalfWritten() []string {
	var names []string
	dirs := []string{filepath.Dir(appliedFile)}
	for _, m := range n.Managers {
		dirs = append(dirs, m.Dir())
	}
	for _, dir := range dirs {
		found, _ := filepath.Glob(n.Path(filepath.Join(dir, system.TemporaryFiles))) // the pattern is ours, and good
		names = append(names, found...)
	}
	return names
}

func (n *Configurator) RemoveHalfWritten() error {
	var errs []error
	for _, name := range n.HalfWritten() {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// setResolv writes resolv.conf, or restores the former one when the configuration no longer names servers.
func (n *Configurator) setResolv(ctx context.Context, m Manager, c Config) error {
	now := n.readSaved("etc/resolv.conf")
	if writesResolv(ctx, m, c) {
		if !isOurs(now) {
			if err := n.WriteJSON(resolvFile, now); err != nil {
				return err
			}
		}
		if err := n.writeSaved("etc/resolv.conf", SavedFile{Exists: true, Content: resolvConf(c)}); err != nil {
			return fmt.Errorf("write resolv.conf: %w", err)
		}
		return nil
	}
	var before SavedFile
	found, err := n.ReadJSON(resolvFile, &before)
	if err != nil || !found || !isOurs(now) {
		return err
	}
	if err := n.writeSaved("etc/resolv.conf", before); err != nil {
		return fmt.Errorf("give resolv.conf back: %w", err)
	}
	return nil
}

func isOurs(f SavedFile) bool { return strings.HasPrefix(f.Content, FileHeader) }

// readSaved reads a file as it is. What cannot be read counts as missing.
func (n *Configurator) readSaved(rel string) SavedFile {
	if target, err := os.Readlink(n.Path(rel)); err == nil {
		return SavedFile{Exists: true, Target: target}
	}
	b, err := os.ReadFile(n.Path(rel))
	return SavedFile{Exists: err == nil, Content: string(b)}
}

func (n *Configurator) writeSaved(rel string, f SavedFile) error {
	path := n.Path(rel)
	if f.Target == "" && f.Exists {
		return system.ReplaceFile(path, []byte(f.Content))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !f.Exists {
		return nil
	}
	return os.Symlink(f.Target, path)
}
