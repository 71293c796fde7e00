package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestTheSameTreeGivesTheSameRPM, whenever its files were written.
func TestTheSameTreeGivesTheSameRPM(t *testing.T) {
	var first []byte
	for range 2 {
		dir := t.TempDir()
		tree := filepath.Join(dir, "tree")
		for name, content := range map[string]string{
			"DEBIAN/conffiles": "/etc/ingot/agent.yaml\n", "etc/ingot/agent.yaml": "a: b\n",
			"usr/bin/ingot-agent": strings.Repeat("program", 100_000), "lib/systemd/system/ingot-agent.service": "[Unit]\n",
		} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o750); err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(tree, name), content)
		}
		out := filepath.Join(dir, "out.rpm")
		args := []string{
			"rpm",
			"--name",
			"ingot-agent",
			"--version",
			"1.2.3~rc.1",
			"--arch",
			"arm64",
			"--summary",
			"s",
			"--description",
			"d",
			"--epoch",
			"1767225600",
			"--scripts",
			"../../deploy/rpm",
			"--requires",
			"systemd",
			"--out",
			out,
			tree,
		}
		if err := run(args, io.Discard); err != nil {
			t.Fatal(err)
		}
		made, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = made
		}
		if !bytes.Equal(made, first) {
			t.Error("the second one is another")
		}
		// The header has names, which are not compressed.
		for _, want := range []string{"/usr/lib/systemd/system/", "aarch64", "1.2.3~rc.1", "try-restart", "disable --now", "/bin/sh"} {
			if !bytes.Contains(made, []byte(want)) {
				t.Errorf("the header lacks %s", want)
			}
		}
		if bytes.Contains(made, []byte("conffiles")) {
			t.Error("Debian's control files are in it")
		}
		for i, bad := range map[int]string{4: "1.2.3-rc.1", 6: "s390x"} {
			wrong := slices.Clone(args)
			wrong[i] = bad
			if err := run(wrong, io.Discard); err == nil {
				t.Errorf("%s was packed", bad)
			}
		}
	}
}

// TestScriptsDoWhatDebiansDo runs the scripts of both kinds of packages with commands that only note their arguments. They
// do the same to a system; the preset of the RPM's first installation is in addition. There is no purge.
func TestScriptsDoWhatDebiansDo(t *testing.T) {
	for _, pkg := range []string{"ingot-agent", "ingot-controller"} {
		for _, c := range []struct {
			event    string
			debian   [][2]string // script and arguments
			rpm      [][2]string
			addition string
		}{
			{"install", [][2]string{{"postinst", "configure"}}, [][2]string{{"post", "1"}},
				"systemctl --no-reload preset " + pkg + ".service\n"},
			{"upgrade", [][2]string{{"prerm", "upgrade 2"}, {"postinst", "configure 1"}},
				[][2]string{{"post", "2"}, {"preun", "1"}, {"postun", "1"}}, ""},
			{"remove", [][2]string{{"prerm", "remove"}, {"postrm", "remove"}}, [][2]string{{"preun", "0"}, {"postun", "0"}}, ""},
		} {
			for _, booted := range []bool{true, false} {
				debian := effects(t, "../../deploy/debian/"+pkg, c.debian, booted)
				rpm := effects(t, "../../deploy/rpm/"+pkg, c.rpm, booted)
				if want := unique(debian) + c.addition; unique(rpm) != want {
					t.Errorf("%s: %s (systemd runs: %v):\n%swant\n%s", pkg, c.event, booted, unique(rpm), want)
				}
				if c.event == "install" && debian == "" || booted && debian == "" {
					t.Errorf("%s: %s does nothing on Debian: the test no longer sees what scripts do", pkg, c.event)
				}
			}
		}
	}
}

// effects returns the commands that scripts run, one a line.
func effects(t *testing.T, prefix string, scripts [][2]string, booted bool) string {
	t.Helper()
	dir := t.TempDir()
	log, running := filepath.Join(dir, "log"), filepath.Join(dir, "running")
	if booted {
		if err := os.Mkdir(running, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"systemctl", "systemd-tmpfiles", "systemd-sysusers"} {
		path := write(t, filepath.Join(dir, name), "#!/bin/sh\necho "+name+" \"$@\" >>"+log+"\n")
		if err := os.Chmod(path, 0o700); err != nil { //nolint:gosec // G302: a program
			t.Fatal(err)
		}
	}
	for _, s := range scripts {
		text, err := os.ReadFile(prefix + "." + s[0])
		if err != nil {
			t.Fatal(err)
		}
		script := strings.ReplaceAll(string(text), "/run/systemd/system", running)
		//nolint:gosec // G204: scripts of the tree
		c := exec.CommandContext(t.Context(), "/bin/sh", append([]string{"-c", script, s[0]}, strings.Fields(s[1])...)...)
		c.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("%s.%s %s: %v\n%s", prefix, s[0], s[1], err, out)
		}
	}
	text, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// unique returns lines without repetitions: an old package reads units again too.
func unique(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		if !slices.Contains(out, line) {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}
