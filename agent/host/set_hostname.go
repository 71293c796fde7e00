package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// temporaryFiles is the pattern of files that are written and not yet renamed to their place.
const temporaryFiles = ".ingot-*"

// Hostname is the running one.
func (l *Linux) Hostname(ctx context.Context) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	name := l.read("proc/sys/kernel/hostname")
	if name == "" {
		return "", fmt.Errorf("read host name from %s: nothing there", l.path("proc/sys/kernel/hostname"))
	}
	return name, nil
}

// SetHostname writes the file first: if the kernel refuses, the next boot still has the name that was wanted,
// and the error says that the running one differs.
func (l *Linux) SetHostname(ctx context.Context, _ Effect, name string) error {
	if err := ValidateHostname(name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.hostnameIs(name) {
		return nil
	}
	if err := replaceFile(l.path("etc/hostname"), []byte(name+"\n")); err != nil {
		return fmt.Errorf("write host name: %w", err)
	}
	if err := l.kernel.sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set host name: %w", err)
	}
	if !l.hostnameIs(name) {
		return fmt.Errorf("set host name %s: file holds %q, kernel %q: %w", name, l.read("etc/hostname"),
			l.read("proc/sys/kernel/hostname"), ErrReadBack)
	}
	return nil
}

func (l *Linux) hostnameIs(name string) bool {
	return l.read("etc/hostname") == name && l.read("proc/sys/kernel/hostname") == name
}

// replaceFile leaves either the old content or the new, durable when it returns.
func replaceFile(path string, content []byte) (err error) {
	dir := filepath.Dir(path)
	if err := makeDir(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, temporaryFiles)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, writeErr := f.Write(content)
	if err := errors.Join(writeErr, f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// makeDir makes a directory that others may read, whatever this process's umask.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}
