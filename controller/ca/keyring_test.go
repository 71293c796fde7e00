package ca

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
)

const childDir = "INGOT_TEST_CA_DIR"

// With childDir set the test binary only opens a CA there, so that a test can kill it at a failpoint.
func TestMain(m *testing.M) {
	dir := os.Getenv(childDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := failpoint.FromEnv(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	a, err := New(Config{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%x\n", a.RootHash())
}

func child(t *testing.T, dir, failpoints string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childDir+"="+dir, failpoint.EnvVar+"="+failpoints)
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestKilledWhileMakingKeys(t *testing.T) {
	t.Parallel()
	for point, made := range map[string]bool{"ca.half-made": false, "ca.before-rename": false, "ca.after-rename": true} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "ca")
			_, err := child(t, dir, point+"=kill")
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
				t.Fatalf("child: %v, want SIGKILL", err)
			}
			_, err = os.Stat(filepath.Join(dir, version))
			if made != (err == nil) {
				t.Fatalf("v1 after the crash: %v", err)
			}
			first, err := child(t, dir, "")
			if err != nil {
				t.Fatalf("start after the crash: %v", err)
			}
			if second, err := child(t, dir, ""); err != nil || second != first {
				t.Fatalf("root changed from %s to %s: %v", first, second, err)
			}
			if got := entries(t, dir); len(got) != 2 || got[0] != lockFile || got[1] != version {
				t.Fatalf("left in the directory: %v", got)
			}
		})
	}
}

func TestControllersThatStartTogetherShareOneCA(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "ca")
	var cmds []*exec.Cmd
	var outs []*strings.Builder
	for range 4 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), childDir+"="+dir)
		out := &strings.Builder{}
		cmd.Stdout = out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds, outs = append(cmds, cmd), append(outs, out)
	}
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		if outs[i].String() != outs[0].String() || outs[0].Len() != 2*sha256.Size+1 {
			t.Fatalf("roots %q and %q", outs[0], outs[i])
		}
	}
}

func TestReopenGivesTheSameKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *Authority {
		a, err := New(Config{Dir: dir, Clock: clock.NewFake(start)})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a, b := open(), open()
	if a.RootHash() != b.RootHash() || !a.GrantKey().Equal(b.GrantKey()) ||
		!a.signing().keys.signer.Equal(b.signing().keys.signer) {
		t.Fatal("keys changed")
	}
	roots, err := pki.DecodeCerts(a.RootPEM())
	if err != nil || len(roots) != 1 || sha256.Sum256(roots[0].Raw) != a.RootHash() {
		t.Fatalf("RootPEM and RootHash disagree: %v", err)
	}
	for _, name := range []string{rootKey, intermediateKey, grantKey} {
		info, err := os.Stat(filepath.Join(dir, version, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v, want mode 0600", name, info.Mode(), err)
		}
	}
}

func TestDamagedDirectoryIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	other := t.TempDir()
	if _, err := New(Config{Dir: other}); err != nil {
		t.Fatal(err)
	}
	remove := func(name string) func(string) error {
		return func(v1 string) error { return os.Remove(filepath.Join(v1, name)) }
	}
	swap := func(name string) func(string) error {
		return func(v1 string) error {
			data, err := os.ReadFile(filepath.Join(other, version, name))
			return errors.Join(err, os.WriteFile(filepath.Join(v1, name), data, 0o600))
		}
	}
	for name, tc := range map[string]struct {
		damage func(v1 string) error
		says   string
	}{
		"no root":            {remove(rootCrt), rootCrt},
		"no intermediate":    {remove(intermediateCrt), intermediateCrt},
		"no signing key":     {remove(intermediateKey), intermediateKey},
		"no grant key":       {remove(grantKey), grantKey},
		"key of another CA":  {swap(intermediateKey), intermediateKey},
		"root of another CA": {swap(rootCrt), rootCrt},
		"grant key is ECDSA": {func(v1 string) error {
			return os.Rename(filepath.Join(v1, rootKey),
				filepath.Join(v1, grantKey))
		}, grantKey},
		"truncated": {func(v1 string) error { return os.Truncate(filepath.Join(v1, intermediateCrt), 40) },
			intermediateCrt},
		"key open to others": {func(v1 string) error { return os.Chmod(filepath.Join(v1, intermediateKey), 0o644) },
			"0600"},
		"leaf in root's place": {func(v1 string) error {
			return os.Rename(filepath.Join(v1, grantKey),
				filepath.Join(v1, rootCrt))
		}, rootCrt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if _, err := New(Config{Dir: dir}); err != nil {
				t.Fatal(err)
			}
			v1 := filepath.Join(dir, version)
			if err := tc.damage(v1); err != nil {
				t.Fatal(err)
			}
			before := strings.Join(entries(t, v1), " ")
			if _, err := New(Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("opened with %v, want an error that names %s", err, tc.says)
			}
			if after := strings.Join(entries(t, v1), " "); after != before {
				t.Fatalf("files changed from %s to %s", before, after)
			}
		})
	}
}

func TestRootKeyMayBeAway(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := New(Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, version, rootKey)); err != nil {
		t.Fatal(err)
	}
	a, err := New(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.SignAgent(t.Context(), greedyCSR(t), ids.New(ids.Agent), 0, a.clock.Now()); err != nil {
		t.Fatal(err)
	}
}

func TestDirectoryThatCannotBe(t *testing.T) {
	t.Parallel()
	if _, err := New(Config{}); err == nil {
		t.Error("opened without a directory")
	}
	if _, err := New(Config{Dir: filepath.Join(t.TempDir(), "no", "ca")}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing parent: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Dir: file}); err == nil {
		t.Error("opened a file as a directory")
	}
}
