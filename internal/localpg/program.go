package localpg

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

// Program finds a program of PostgreSQL, such as pg_dump: of the lowest major version that is at least least. It
// returns the version too.
func Program(name string, least int) (path string, major int, err error) {
	for _, glob := range binaryGlobs {
		found, err := filepath.Glob(filepath.Join(glob, name))
		if err != nil {
			panic(err) // the pattern is a constant
		}
		for _, p := range found {
			if v, err := programVersion(p); err == nil && v >= least && (path == "" || v < major) {
				path, major = p, v
			}
		}
	}
	if path == "" {
		return "", 0, fmt.Errorf("%s of PostgreSQL %d or newer is not installed (Debian: apt-get install "+
			"postgresql-client-%d; Fedora: dnf install postgresql)", name, least, least)
	}
	return path, major, nil
}

// programVersion reads the version from the path where it is part of it, and asks the program elsewhere.
func programVersion(path string) (int, error) {
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 == 0 {
		return 0, fmt.Errorf("%s is no program", path)
	}
	if major, err := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))); err == nil {
		return major, nil
	}
	out, err := exec.Command(path, "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	return majorOf(string(out))
}
