package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// WriteFile replaces the file at path so that a crash leaves the old content or the new, whole. The content
// and the name are on disk when it returns nil. The directory must exist.
func WriteFile(path string, data []byte, mode fs.FileMode) error {
	temp, err := writeTemp(filepath.Dir(path), filepath.Base(path), data, mode)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(temp))
	}
	return SyncDir(filepath.Dir(path))
}

// WriteFileFor is WriteFile for a file of another owner, which needs root.
func WriteFileFor(path string, data []byte, mode fs.FileMode, uid, gid int) error {
	next := path + ".new"
	if err := WriteFile(next, data, 0o600); err != nil {
		return err
	}
	err := errors.Join(os.Chown(next, uid, gid), os.Chmod(next, mode))
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(next))
	}
	return SyncDir(filepath.Dir(path))
}

// writeTemp leaves nothing behind when it fails.
func writeTemp(dir, base string, data []byte, mode fs.FileMode) (string, error) {
	f, err := os.CreateTemp(dir, "."+base+".tmp-*") // made with mode 0600: a key is never readable by others
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// SyncDir makes the names in a directory durable (fsync(2) on the directory itself).
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open directory to sync: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}
