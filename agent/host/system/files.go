package system

import (
	"errors"
	"os"
	"path/filepath"
)

// TemporaryFiles is the pattern of files that are written and not yet renamed to their place.
const TemporaryFiles = ".ingot-*"

// ReplaceFile leaves either the old content or the new, durable when it returns.
func ReplaceFile(path string, content []byte) error { return ReplaceFileMode(path, content, 0o644) }

// ReplaceFileMode is ReplaceFile for a file with other permissions.
func ReplaceFileMode(path string, content []byte, mode os.FileMode) (err error) {
	dir := filepath.Dir(path)
	if err := MakeDir(dir); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, TemporaryFiles)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, writeErr := f.Write(content)
	if err := errors.Join(writeErr, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// MakeDir makes a directory that others may read, whatever this process's umask.
func MakeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}
