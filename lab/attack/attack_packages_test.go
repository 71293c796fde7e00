package attack

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// packageAttempts are those of a server in the place of our package repository.
func packageAttempts() []Attempt {
	return []Attempt{
		{Party: Stranger, Attempt: "serve an old copy of the package repository", Rule: 11, Run: replayRepository},
	}
}

// replayRepository: a copy of the signed repository is kept, to be served once its packages have known faults. What
// apt has against that is the end that the signed file names.
func replayRepository(ctx context.Context, r *Rig) (Outcome, error) {
	root := r.T.TempDir()
	repository := filepath.Join(root, "repository")
	if err := layRepository(repository); err != nil {
		return Outcome{}, err
	}
	sign := exec.CommandContext(ctx, "../../scripts/build-apt-repo", "--renew", repository)
	sign.Env = append(os.Environ(), "INGOT_LAB_CACHE="+root)
	if out, err := sign.CombinedOutput(); err != nil {
		return Outcome{}, fmt.Errorf("sign: %w: %s", err, out)
	}
	signed, err := os.ReadFile(filepath.Join(repository, "dists", "stable", "InRelease"))
	if err != nil {
		return Outcome{}, err
	}
	_, rest, ended := strings.Cut(string(signed), "\nValid-Until: ")
	until, _, _ := strings.Cut(rest, "\n")
	end, err := time.Parse(time.RFC1123, until)
	if !ended || err != nil {
		return breached("the copy is good for ever (%v)", err), nil
	}
	if left := time.Until(end); left < 0 || left > 31*24*time.Hour {
		return breached("the copy is good for another %v", left), nil
	}
	return held("the copy is good until %s", until), nil
}

// layRepository lays out a repository without packages, as one that was made before its Release had an end.
func layRepository(dir string) error {
	dist := filepath.Join(dir, "dists", "stable")
	if err := os.MkdirAll(filepath.Join(dist, "main", "binary-amd64"), 0o755); err != nil {
		return err
	}
	release := fmt.Sprintf("Origin: Ingot\nSuite: stable\nCodename: stable\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n"+
		"Architectures: amd64\nComponents: main\nSHA256:\n %x 0 main/binary-amd64/Packages\n", sha256.Sum256(nil))
	if err := os.WriteFile(filepath.Join(dist, "main", "binary-amd64", "Packages"), nil, 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dist, "Release"), []byte(release), 0o644)
}
