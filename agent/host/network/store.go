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

	"github.com/ingot-metal/ingot/agent/host/netdump"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/agent/host/textdiff"
)

const (
	networkdDir = "etc/systemd/network"
	// Beside the files that they are about, so that both are there at boot or neither.
	appliedFile = "etc/ingot/network/applied.json"
	resolvFile  = "etc/ingot/network/resolv.conf.json" // what resolv.conf was before it was ours
)

// appliedRecord is the configuration in force, and the boot that it was applied on.
type appliedRecord struct {
	BootID string `json:"boot_id"`
	Config Config `json:"config"`
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

func (n *Configurator) writeApplied(bootID string, c Config) error {
	return n.WriteJSON(appliedFile, appliedRecord{BootID: bootID, Config: c})
}

// NetworkForgotten: networkd reads its files at boot; without it the kernel knows what was set since.
func (n *Configurator) NetworkForgotten(context.Context) (bool, error) {
	var r appliedRecord
	found, err := n.ReadJSON(appliedFile, &r)
	return err == nil && !n.RunsSystemd() && (!found || r.BootID != n.BootID()), err
}

// networkFiles reads our files for networkd.
func (n *Configurator) networkFiles() (map[string]string, error) {
	paths, err := filepath.Glob(n.Path(networkdDir + "/" + networkPrefix + "*"))
	if err != nil {
		return nil, fmt.Errorf("list network files: %w", err)
	}
	out := map[string]string{}
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("read network file: %w", err)
		}
		out[filepath.Base(p)] = string(b)
	}
	return out, nil
}

// wantedFiles renders the configuration for the cards of this host.
func (n *Configurator) wantedFiles(c Config) (map[string]string, error) {
	list, err := netdump.Links()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	permanent := map[string]bool{}
	for _, link := range list {
		if mac, ok := macOf(link); ok {
			permanent[mac] = true
		}
	}
	return networkdFiles(c, func(mac string) bool { return permanent[mac] }), nil
}

// writeFiles makes these files all that are ours. Each is replaced as a whole. A file that is gone takes effect only
// with the next reload, so that the order does not matter.
func (n *Configurator) writeFiles(want map[string]string) error {
	have, err := n.networkFiles()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if old, ok := have[name]; ok && old == want[name] {
			continue
		}
		if err := system.ReplaceFile(n.Path(filepath.Join(networkdDir, name)), []byte(want[name])); err != nil {
			return fmt.Errorf("write network file: %w", err)
		}
	}
	for name := range have {
		if _, ok := want[name]; ok {
			continue
		}
		if err := os.Remove(n.Path(filepath.Join(networkdDir, name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove network file: %w", err)
		}
	}
	if len(have) == 0 {
		return nil
	}
	return system.SyncDir(n.Path(networkdDir))
}

// diffFiles shows how files differ, one after the other.
func diffFiles(want, have map[string]string) string {
	names := maps.Clone(want)
	maps.Copy(names, have)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		path := networkdDir + "/" + name
		b.WriteString(
			textdiff.Unified("committed/"+path, "host/"+path, textdiff.Lines(want[name]), textdiff.Lines(have[name])),
		)
	}
	return b.String()
}

// restoreFiles puts back what was saved, as much of it as can be.
func (n *Configurator) restoreFiles(s SavedNetwork) error {
	errs := []error{n.writeFiles(s.Files), n.RemoveHalfWritten()}
	if isOurs(n.readSaved("etc/resolv.conf")) {
		if err := n.writeSaved("etc/resolv.conf", s.Resolv); err != nil {
			errs = append(errs, fmt.Errorf("restore resolv.conf: %w", err))
		}
	}
	if s.Applied != nil {
		errs = append(errs, n.writeApplied(s.BootID, *s.Applied))
	} else {
		errs = append(errs, n.Remove(appliedFile))
	}
	return errors.Join(errs...)
}

// HalfWritten returns the files that a killed process, or a machine that went down, was about to rename.
func (n *Configurator) HalfWritten() []string {
	var names []string
	for _, dir := range []string{networkdDir, filepath.Dir(appliedFile)} {
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

// writesResolv: where systemd-resolved runs, networkd tells it, and nobody needs the file.
func (n *Configurator) writesResolv(ctx context.Context, c Config) bool {
	return namesServers(c) && !n.hasOwner(ctx, resolvedName)
}

// setResolv writes resolv.conf, or gives it back when the configuration has no say in it any more.
func (n *Configurator) setResolv(ctx context.Context, c Config) error {
	now := n.readSaved("etc/resolv.conf")
	if n.writesResolv(ctx, c) {
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

func isOurs(f SavedFile) bool { return strings.HasPrefix(f.Content, fileHeader) }

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
