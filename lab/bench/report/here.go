package report

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Here returns the run with its place and time: this machine, this commit, today, and the command line of this process.
func (r Run) Here(ctx context.Context, command string) (Run, error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return r, fmt.Errorf("find the commit that is measured: %w", err)
	}
	r.Commit = strings.TrimSpace(string(out))
	// Documents are left out: a benchmark before may have written its own page.
	changes := exec.CommandContext(ctx, "git", "diff", "--quiet", "HEAD", "--", ":/", ":(top,exclude)docs")
	if changes.Run() != nil {
		r.Commit += "-dirty"
	}
	r.Date = time.Now().UTC().Format(time.DateOnly)
	r.Machine = machine("/proc/cpuinfo", "/proc/meminfo", "/etc/os-release")
	r.Command = strings.Join(append([]string{command}, os.Args[1:]...), " ")
	return r, nil
}

// machine describes this one, by files of Linux. What they don't hold is left out.
func machine(cpuinfo, meminfo, osRelease string) string {
	out := fmt.Sprintf("%d processors", runtime.NumCPU())
	if model := field(cpuinfo, "model name", ":"); model != "" {
		out += " (" + model + ")"
	}
	var kib int64
	if _, err := fmt.Sscan(field(meminfo, "MemTotal", ":"), &kib); err == nil {
		out += fmt.Sprintf(", %d GiB", (kib+1<<19)>>20)
	}
	if name := strings.Trim(field(osRelease, "PRETTY_NAME", "="), `"`); name != "" {
		out += ", " + name
	}
	return out
}

// field is the value of the first line of a file that begins with the name.
func field(path, name, separator string) string {
	f, err := os.Open(filepath.Clean(path))
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		left, right, ok := strings.Cut(lines.Text(), separator)
		if ok && strings.TrimSpace(left) == name {
			return strings.TrimSpace(right)
		}
	}
	return ""
}
