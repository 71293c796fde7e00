package invariants

import (
	"bytes"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tree must build anywhere, so it names nothing of the machine that it happens to stand on: not where it is
// checked out, not whose home it is in, not where that machine gets its modules from.
func TestTreeNamesNoMachine(t *testing.T) {
	marks := machineMarks(t)
	for _, path := range trackedFiles(t) {
		data, err := os.ReadFile(filepath.Join(root, path))
		if os.IsNotExist(err) { // Deleted, and not committed yet.
			continue
		} else if err != nil {
			t.Fatalf("read %s: %v", path, err)
		}
		if bytes.IndexByte(data, 0) >= 0 {
			continue
		}
		for what, mark := range marks {
			if at := mark.FindIndex(data); at != nil {
				t.Errorf("%s:%d names %s", path, 1+bytes.Count(data[:at[1]], []byte("\n")), what)
			}
		}
	}
}

// TestTheCommandLineBuildsForAnotherSystem builds for Windows, which differs most from Linux. `make test-cli-archives`
// builds and vets all six targets, which share no compiled package.
func TestTheCommandLineBuildsForAnotherSystem(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles everything once more where nothing has been compiled")
	}
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-tags", "grpcnotrace", "-o",
		filepath.Join(t.TempDir(), "ingot.exe"), "./cmd/ingot")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=windows", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

// machineMarks returns what of this machine would be no coincidence in a file. A path of one part, such as /ingot,
// would.
func machineMarks(t *testing.T) map[string]*regexp.Regexp {
	t.Helper()
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatalf("find the top of the tree: %v", err)
	}
	marks := map[string]*regexp.Regexp{}
	if strings.Count(top, "/") > 1 {
		marks["the checkout's path"] = pathMark(top)
	}
	if home, err := os.UserHomeDir(); err == nil && len(home) > 4 {
		marks["a home directory"] = pathMark(home)
	}
	for _, variable := range []string{"GOPROXY", "GOSUMDB"} {
		for _, host := range privateHosts(t, variable) {
			marks["the host in "+variable] = regexp.MustCompile(regexp.QuoteMeta(host))
		}
	}
	return marks
}

// pathMark matches the directory itself, not one of the same name further down.
func pathMark(dir string) *regexp.Regexp {
	return regexp.MustCompile(`(?m)(^|[^\w./-])` + regexp.QuoteMeta(dir) + `/`)
}

// privateHosts returns the hosts in a variable of the go tool that are not the public ones.
func privateHosts(t *testing.T, variable string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", variable).Output()
	if err != nil {
		t.Fatalf("go env %s: %v", variable, err)
	}
	var hosts []string
	for _, part := range strings.FieldsFunc(string(out), func(r rune) bool { return strings.ContainsRune(",| \n", r) }) {
		u, err := url.Parse(part)
		if err == nil && u.Hostname() != "" && !strings.HasSuffix(u.Hostname(), "golang.org") {
			hosts = append(hosts, u.Hostname())
		}
	}
	return hosts
}

// trackedFiles returns the files that are in git or would be added to it.
func trackedFiles(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 })
}
