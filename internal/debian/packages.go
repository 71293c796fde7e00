package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// UnpackPackages downloads Debian's packages and unpacks them together below cacheDir, unless they are there. It
// installs nothing. Several processes may call it at once.
func UnpackPackages(ctx context.Context, cacheDir string, names ...string) (root string, err error) {
	root = filepath.Join(cacheDir, "packages", strings.Join(names, "+"))
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	if err := os.MkdirAll(filepath.Dir(root), 0o755); err != nil {
		return "", fmt.Errorf("make cache directory: %w", err)
	}
	unlock, err := lock(filepath.Join(cacheDir, "lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	if err := unpackPackages(ctx, cacheDir, root, names); err == nil || os.Geteuid() != 0 {
		return root, err
	}
	if _, err := run(ctx, "", "apt-get", "-q", "update"); err != nil { // the lists are missing, or old
		return "", err
	}
	return root, unpackPackages(ctx, cacheDir, root, names)
}

// unpackPackages downloads the packages and unpacks them in a scratch directory, which it renames to root: that
// is complete or absent.
func unpackPackages(ctx context.Context, cacheDir, root string, names []string) (err error) {
	scratch, err := os.MkdirTemp(cacheDir, "download-*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	// The download runs as the caller: apt's own user can't write to the caller's directories.
	args := append([]string{"-q", "-o", "APT::Sandbox::User=", "download"}, names...)
	if _, err := run(ctx, scratch, "apt-get", args...); err != nil {
		return err
	}
	debs, _ := filepath.Glob(filepath.Join(scratch, "*.deb")) // the pattern is well formed
	if len(debs) != len(names) {
		return fmt.Errorf("apt-get download left %d packages of %d", len(debs), len(names))
	}
	for _, deb := range debs {
		if _, err := run(ctx, scratch, "dpkg-deb", "-x", deb, "root"); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	return os.Rename(filepath.Join(scratch, "root"), root)
}
