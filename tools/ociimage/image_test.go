package main

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestTheSameInputGivesTheSameBytes(t *testing.T) {
	for kind := range kinds {
		again := filepath.Join(t.TempDir(), "again.tar")
		makeImage(t, kind, again)
		one, err := os.ReadFile(archiveOf(t, kind))
		if err != nil {
			t.Fatal(err)
		}
		two, err := os.ReadFile(again)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(one, two) {
			t.Errorf("%s: other bytes", kind)
		}
	}
}

// TestBothFormsAreOneImage: what an engine reads of the OCI layout and of the manifest for `docker load`.
func TestBothFormsAreOneImage(t *testing.T) {
	for kind, k := range kinds {
		var forms []imageConfig
		for _, form := range []string{"oci-archive:", "docker-archive:"} {
			var c imageConfig
			out := must(t, "skopeo", "inspect", "--config", form+archiveOf(t, kind))
			if err := json.Unmarshal([]byte(out), &c); err != nil {
				t.Fatal(err)
			}
			forms = append(forms, c)
		}
		if forms[0].Created != forms[1].Created || strings.Join(forms[0].Config.Entrypoint, " ") !=
			strings.Join(forms[1].Config.Entrypoint, " ") {
			t.Errorf("%s: %+v", kind, forms)
		}
		// The blobs are verified by their digests as they are read.
		to := filepath.Join(t.TempDir(), "loaded.tar")
		must(
			t,
			"skopeo",
			"copy",
			"--quiet",
			"docker-archive:"+archiveOf(t, kind)+":"+k.name+":"+version,
			"docker-archive:"+to,
		)
	}
}

func TestWhatIsInAnImage(t *testing.T) {
	for kind, k := range kinds {
		c := configOf(t, kind)
		if c.OS != "linux" || c.Architecture != runtime.GOARCH ||
			c.Created != time.Unix(epoch, 0).UTC().Format(time.RFC3339) ||
			c.Config.User != "65532:65532" {
			t.Errorf("%s: %+v", kind, c)
		}
		for label, want := range map[string]string{"version": version, "revision": revision, "licenses": "Apache-2.0"} {
			if got := c.Config.Labels["org.opencontainers.image."+label]; got != want {
				t.Errorf("%s: label %s is %q", kind, label, got)
			}
		}
		root := unpack(t, kind)
		checkTree(t, k, root)
		want, err := os.ReadFile("/etc/ssl/certs/ca-certificates.crt")
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: the authorities differ (%v)", kind, err)
		}
		for _, program := range k.programs {
			checkProgram(t, k, program, filepath.Join(root, "usr/bin", program))
		}
	}
}

// checkTree holds that nobody but root may write, outside of the state and of /tmp.
func checkTree(t *testing.T, k kind, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		inside := strings.TrimPrefix(path, root)
		if info.Mode()&0o022 != 0 && inside != "/tmp" || info.ModTime().Unix() != epoch {
			t.Errorf("%s: %s: %s, %s", k.name, inside, info.Mode(), info.ModTime())
		}
		if own := info.Sys().(*syscall.Stat_t).Uid == userID; own != (inside == k.state) {
			t.Errorf("%s: %s belongs to another user", k.name, inside)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkProgram compares a program with the one that it was made of, and its capabilities with those of the kind.
func checkProgram(t *testing.T, k kind, name, path string) {
	t.Helper()
	want, err := os.ReadFile(filepath.Join(os.Getenv(programsVariable), name))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s: %s has other bytes (%v)", k.name, name, err)
	}
	_, err = unix.Getxattr(path, "security.capability", make([]byte, 64))
	if has := err == nil; has != (name == k.programs[0] && len(k.capabilities) > 0) {
		t.Errorf("%s: capabilities of %s: %v (%v)", k.name, name, has, err)
	}
}

func TestMistakes(t *testing.T) {
	out := filepath.Join(t.TempDir(), "x.tar")
	bin := os.Getenv(programsVariable)
	loaded := t.TempDir() // a program that needs a loader
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(loaded, "ingot-agent"), shell, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"--image is":         {},
		`not "x"`:            {"--image", "x", "--version", "1", "--out", out},
		"--version":          {"--image", "agent", "--out", out},
		`"1+2"`:              {"--image", "agent", "--out", out, "--version", "1+2"},
		"--out":              {"--image", "agent", "--version", "1"},
		"no such file":       {"--image", "agent", "--version", "1", "--out", out, "--bin", t.TempDir()},
		"needs a loader":     {"--image", "agent", "--version", "1", "--out", out, "--bin", loaded},
		"holds no certifica": {"--image", "agent", "--version", "1", "--out", out, "--bin", bin, "--ca", "/dev/null"},
	} {
		if err := run(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", strconv.Quote(want), err)
		}
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("a file was left")
	}
}
