package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/ingot-metal/ingot/internal/version"
)

// MinVersion is the oldest major version that works: string_to_table and CREATE OR REPLACE TRIGGER came with 14.
const MinVersion = 14

// ErrNotInstalled is wrapped by the error of a system without usable PostgreSQL binaries.
var ErrNotInstalled = errors.New("PostgreSQL server binaries are not installed")

// where the distributions put them: Debian and its kin, Red Hat and its kin, Arch and self-built ones.
var binaryGlobs = []string{"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/bin", "/usr/local/pgsql/bin",
	"/usr/local/bin"}

type installation struct {
	dir   string
	major int
}

// findBinaries returns the directory that has initdb and postgres: of major version want, or the newest for 0.
func findBinaries(want int) (string, error) {
	inst, ok := choose(installations(), want)
	switch {
	case ok:
		return inst.dir, nil
	case want != 0:
		return "", fmt.Errorf("%w: the cluster was made by version %d; install it (Debian: apt-get install postgresql-%d)",
			ErrNotInstalled, want, want)
	}
	return "", fmt.Errorf("%w: install version %d or newer (Debian: apt-get install postgresql; "+
		"Fedora: dnf install postgresql-server) or give the URL of a running one", ErrNotInstalled, MinVersion)
}

func choose(all []installation, want int) (best installation, ok bool) {
	for _, i := range all {
		fits := i.major == want || want == 0 && i.major >= MinVersion
		if fits && i.major > best.major {
			best, ok = i, true
		}
	}
	return best, ok
}

func installations() []installation {
	var out []installation
	for _, glob := range binaryGlobs {
		dirs, err := filepath.Glob(glob)
		if err != nil {
			panic(err) // the pattern is a constant
		}
		for _, dir := range dirs {
			if major, err := versionOf(dir); err == nil {
				out = append(out, installation{dir, major})
			}
		}
	}
	return out
}

// versionOf reads the version from the path where it is part of it, and asks the binary elsewhere.
func versionOf(dir string) (int, error) {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return 0, err
		}
	}
	if major, err := strconv.Atoi(filepath.Base(filepath.Dir(dir))); err == nil {
		return major, nil
	}
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, fmt.Errorf("ask for the version of postgres: %w", err)
	}
	return majorOf(string(out))
}

// majorOf reads "postgres (PostgreSQL) 15.8 (Debian 15.8-0+deb12u1)".
func majorOf(line string) (int, error) {
	_, rest, ok := strings.Cut(line, "(PostgreSQL) ")
	v, number := version.Parse(rest)
	if !ok || !number {
		return 0, fmt.Errorf("unexpected version line %q", line)
	}
	return v.Major, nil
}

// dataVersion is the major version that made the cluster, 0 where there is none.
func dataVersion(data string) (int, error) {
	b, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of the cluster: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(b)))
}
