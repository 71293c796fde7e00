package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startRegistry runs Debian's docker-registry (distribution) on a directory.
func startRegistry(t *testing.T) (address string) {
	t.Helper()
	address = "127.0.0.1:5000"
	dir := t.TempDir()
	config := filepath.Join(dir, "config.yml")
	text := fmt.Sprintf(
		"version: 0.1\nstorage: {filesystem: {rootdirectory: %q}}\nhttp: {addr: %q}\n",
		filepath.Join(dir, "root"),
		address,
	)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("docker-registry", "serve", config)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if text, err := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("docker-registry (%v):\n%s", err, text)
		}
	})
	eventually(t, "the registry listens", func() bool {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return address
}

// TestARegistryTakesThem pushes the images, reads them back, and holds that they are the same.
func TestARegistryTakesThem(t *testing.T) {
	address := startRegistry(t)
	for kind, k := range kinds {
		want := strings.TrimSpace(must(t, "skopeo", "inspect", "--format", "{{.Digest}}", "oci-archive:"+archiveOf(t, kind)))
		there := "docker://" + address + "/ingot/" + k.name + ":" + version
		must(t, "skopeo", "copy", "--quiet", "--dest-tls-verify=false", "oci-archive:"+archiveOf(t, kind), there)
		got := strings.TrimSpace(must(t, "skopeo", "inspect", "--tls-verify=false", "--format", "{{.Digest}}", there))
		if got != want || !strings.HasPrefix(got, "sha256:") {
			t.Errorf("%s: digest %s in the registry, %s in the file", kind, got, want)
		}
		back := filepath.Join(t.TempDir(), "back")
		must(t, "skopeo", "copy", "--quiet", "--src-tls-verify=false", there, "oci:"+back+":image")
		got = strings.TrimSpace(must(t, "skopeo", "inspect", "--format", "{{.Digest}}", "oci:"+back+":image"))
		if got != want {
			t.Errorf("%s: digest %s of what comes back, %s was pushed", kind, got, want)
		}
	}
}
