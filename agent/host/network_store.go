package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

const (
	networkdDir = "etc/systemd/network"
	// Beside the files that they are about, so that both are there at boot or neither.
	appliedFile = "etc/ingot/network/applied.json"
	resolvFile  = "etc/ingot/network/resolv.conf.json" // what resolv.conf was before it was ours
)

// appliedRecord is the configuration in force, and the boot that it was applied on.
type appliedRecord struct {
	BootID string        `json:"boot_id"`
	Config NetworkConfig `json:"config"`
}

// applied reads the configuration in force.
func (l *Linux) applied() (*NetworkConfig, error) {
	var r appliedRecord
	found, err := l.readJSON(appliedFile, &r)
	if err != nil || !found {
		return nil, err
	}
	return &r.Config, nil
}

func (l *Linux) writeApplied(bootID string, c NetworkConfig) error {
	return l.writeJSON(appliedFile, appliedRecord{BootID: bootID, Config: c})
}

// NetworkForgotten: networkd reads its files at boot; without it the kernel knows what was set since.
func (l *Linux) NetworkForgotten(context.Context) (bool, error) {
	var r appliedRecord
	found, err := l.readJSON(appliedFile, &r)
	return err == nil && !l.systemd() && (!found || r.BootID != l.bootID()), err
}

// networkFiles reads our files for networkd.
func (l *Linux) networkFiles() (map[string]string, error) {
	paths, err := filepath.Glob(l.path(networkdDir + "/" + networkPrefix + "*"))
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
func (l *Linux) wantedFiles(c NetworkConfig) (map[string]string, error) {
	list, err := netlink.LinkList()
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
func (l *Linux) writeFiles(want map[string]string) error {
	have, err := l.networkFiles()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if old, ok := have[name]; ok && old == want[name] {
			continue
		}
		if err := replaceFile(l.path(filepath.Join(networkdDir, name)), []byte(want[name])); err != nil {
			return fmt.Errorf("write network file: %w", err)
		}
	}
	for name := range have {
		if _, ok := want[name]; ok {
			continue
		}
		if err := os.Remove(l.path(filepath.Join(networkdDir, name))); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove network file: %w", err)
		}
	}
	if len(have) == 0 {
		return nil
	}
	return syncDir(l.path(networkdDir))
}

// diffFiles shows how files differ, one after the other.
func diffFiles(want, have map[string]string) string {
	names := maps.Clone(want)
	maps.Copy(names, have)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		path := networkdDir + "/" + name
		b.WriteString(UnifiedDiff("committed/"+path, "host/"+path, textLines(want[name]), textLines(have[name])))
	}
	return b.String()
}

// restoreFiles puts back what was saved, as much of it as can be.
func (l *Linux) restoreFiles(s SavedNetwork) error {
	errs := []error{l.writeFiles(s.Files), l.removeHalfWritten()}
	if isOurs(l.readSaved("etc/resolv.conf")) {
		if err := l.writeSaved("etc/resolv.conf", s.Resolv); err != nil {
			errs = append(errs, fmt.Errorf("restore resolv.conf: %w", err))
		}
	}
	if s.Applied != nil {
		errs = append(errs, l.writeApplied(s.BootID, *s.Applied))
	} else {
		errs = append(errs, l.removeDurably(appliedFile))
	}
	return errors.Join(errs...)
}

// halfWritten returns the files that a killed process, or a machine that went down, was about to rename.
func (l *Linux) halfWritten() []string {
	var names []string
	for _, dir := range []string{networkdDir, filepath.Dir(GuardFile)} {
		found, _ := filepath.Glob(l.path(filepath.Join(dir, temporaryFiles))) // the pattern is ours, and good
		names = append(names, found...)
	}
	return names
}

func (l *Linux) removeHalfWritten() error {
	var errs []error
	for _, name := range l.halfWritten() {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// writesResolv: where systemd-resolved runs, networkd tells it, and nobody needs the file.
func (l *Linux) writesResolv(ctx context.Context, c NetworkConfig) bool {
	return c.namesServers() && !l.hasOwner(ctx, resolvedName)
}

// setResolv writes resolv.conf, or gives it back when the configuration has no say in it any more.
func (l *Linux) setResolv(ctx context.Context, c NetworkConfig) error {
	now := l.readSaved("etc/resolv.conf")
	if l.writesResolv(ctx, c) {
		if !isOurs(now) {
			if err := l.writeJSON(resolvFile, now); err != nil {
				return err
			}
		}
		if err := l.writeSaved("etc/resolv.conf", SavedFile{Exists: true, Content: resolvConf(c)}); err != nil {
			return fmt.Errorf("write resolv.conf: %w", err)
		}
		return nil
	}
	var before SavedFile
	found, err := l.readJSON(resolvFile, &before)
	if err != nil || !found || !isOurs(now) {
		return err
	}
	if err := l.writeSaved("etc/resolv.conf", before); err != nil {
		return fmt.Errorf("give resolv.conf back: %w", err)
	}
	return nil
}

func isOurs(f SavedFile) bool { return strings.HasPrefix(f.Content, fileHeader) }

// readSaved reads a file as it is. What cannot be read counts as missing.
func (l *Linux) readSaved(rel string) SavedFile {
	if target, err := os.Readlink(l.path(rel)); err == nil {
		return SavedFile{Exists: true, Target: target}
	}
	b, err := os.ReadFile(l.path(rel))
	return SavedFile{Exists: err == nil, Content: string(b)}
}

func (l *Linux) writeSaved(rel string, f SavedFile) error {
	path := l.path(rel)
	if f.Target == "" && f.Exists {
		return replaceFile(path, []byte(f.Content))
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if !f.Exists {
		return nil
	}
	return os.Symlink(f.Target, path)
}

func (l *Linux) readJSON(rel string, into any) (found bool, err error) {
	b, err := os.ReadFile(l.path(rel))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", rel, err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		return false, fmt.Errorf("read %s: %w", rel, err)
	}
	return true, nil
}

func (l *Linux) writeJSON(rel string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", rel, err)
	}
	if err := replaceFile(l.path(rel), append(b, '\n')); err != nil {
		return fmt.Errorf("write %s: %w", rel, err)
	}
	return nil
}

func (l *Linux) removeDurably(rel string) error {
	path := l.path(rel)
	if err := os.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("remove %s: %w", rel, err)
	}
	return syncDir(filepath.Dir(path))
}
