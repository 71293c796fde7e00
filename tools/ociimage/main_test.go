package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// programsVariable names the directory with the programs; make test-oci sets it.
const programsVariable = "INGOT_TEST_BIN"

// inner is set for the tests themselves, which have namespaces of their own: every port is free there, what they mount
// is theirs, and what they start ends with them.
const inner = "INGOT_TEST_INNER"

func TestMain(m *testing.M) {
	code, err := 0, error(nil)
	if os.Getenv(inner) == "" {
		code, err = inNamespaces()
	} else if err = prepareNamespaces(); err == nil {
		code = m.Run()
		err = os.RemoveAll(archives.dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func inNamespaces() (int, error) {
	if os.Geteuid() != 0 || os.Getenv(programsVariable) == "" {
		return 1, fmt.Errorf("only root runs an image without a container engine; run make test-oci, which sets %s",
			programsVariable)
	}
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inner+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWPID}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return 1, err
	}
	return cmd.ProcessState.ExitCode(), nil
}

func prepareNamespaces() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts to ourselves: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	out, err := exec.CommandContext(context.Background(), "ip", "link", "set", "lo", "up").CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip link: %w: %s", err, out)
	}
	return nil
}

// must runs a program to its end and gives what it has printed.
func must(t testing.TB, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var said strings.Builder
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, said.String())
	}
	return string(out)
}

// What the images of the tests are said to be.
const (
	version  = "1.2.3"
	revision = "0123abc"
	epoch    = 1700000000
)

// makeImage runs the command on the programs, as make oci-images does.
func makeImage(t testing.TB, kind, out string) {
	t.Helper()
	err := run(
		[]string{"--image", kind, "--bin", os.Getenv(programsVariable), "--version", version, "--revision", revision,
			"--epoch", fmt.Sprint(epoch), "--out", out},
	)
	if err != nil {
		t.Fatal(err)
	}
}

var archives struct {
	sync.Mutex
	dir  string
	made map[string]string
}

// archiveOf is the file of an image, made once for all tests.
func archiveOf(t testing.TB, kind string) (path string) {
	t.Helper()
	archives.Lock()
	defer archives.Unlock()
	if archives.made == nil {
		dir, err := os.MkdirTemp("", "ingot-oci-")
		if err != nil {
			t.Fatal(err)
		}
		archives.dir, archives.made = dir, map[string]string{}
	}
	if archives.made[kind] == "" {
		path := filepath.Join(archives.dir, kind+".tar")
		makeImage(t, kind, path)
		archives.made[kind] = path
	}
	return archives.made[kind]
}

// imageConfig is the part of an image's configuration that runs it (OCI image specification, "Image Configuration").
type imageConfig struct {
	Architecture, OS, Created string
	Config                    struct {
		User, WorkingDir, StopSignal string
		Env, Entrypoint, Cmd         []string
		ExposedPorts, Volumes        map[string]struct{}
		Labels                       map[string]string
	}
}

// configOf has skopeo read the configuration.
func configOf(t testing.TB, kind string) (c imageConfig) {
	t.Helper()
	if err := json.Unmarshal(
		[]byte(must(t, "skopeo", "inspect", "--config", "oci-archive:"+archiveOf(t, kind))),
		&c,
	); err != nil {
		t.Fatal(err)
	}
	return c
}

// unpack has skopeo and umoci unpack the image, and gives the root.
func unpack(t testing.TB, kind string) (root string) {
	t.Helper()
	dir := t.TempDir()
	layout := filepath.Join(dir, "layout") + ":image"
	must(t, "skopeo", "copy", "--quiet", "oci-archive:"+archiveOf(t, kind), "oci:"+layout)
	must(t, "umoci", "unpack", "--image", layout, filepath.Join(dir, "bundle"))
	return filepath.Join(dir, "bundle", "rootfs")
}

// eventually waits until something is so, five minutes at most: a machine may be busy.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !ok(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}
