package disks

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/hosttest"
)

// inVM runs the calling test again in a machine with these devices, as arguments of qemu(1). It returns true in there;
// the caller returns when it is false.
func inVM(t *testing.T, devices func(dir string) []string) bool {
	t.Helper()
	if os.Getenv(hosttest.VMVariable) == "1" {
		return true
	}
	dir := t.TempDir()
	initrd := filepath.Join(dir, "initrd")
	args := []string{
		"-accel",
		"tcg",
		"-machine",
		"q35",
		"-m",
		"1024",
		"-cpu",
		"qemu64,+rdrand,+ssse3,+sse4.1,+sse4.2",
		"-display",
		"none",
		"-no-reboot",
		"-serial",
		"stdio",
		"-nodefaults",
		"-kernel",
		hosttest.WriteInitrd(
			t,
			initrd,
			hosttest.VMRun{Limit: hosttest.VMTime},
		),
		"-initrd",
		initrd,
		"-append",
		"console=ttyS0 quiet panic=-1",
	}
	cmd := exec.CommandContext(t.Context(), "qemu-system-x86_64", append(args, devices(dir)...)...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	ctx, cancel := context.WithTimeout(t.Context(), hosttest.VMTime)
	defer cancel()
	out, err := hosttest.RunUntil(ctx, cmd, nil)
	if err != nil || !strings.Contains(out, "TEST ENDED 0") {
		t.Fatalf("in the machine: %v\n%s", err, out)
	}
	return false
}

// nvme is a disk of a machine with this file; its serial number is the file's name.
func nvme(path string) []string {
	name := filepath.Base(path)
	return []string{
		"-drive", "if=none,format=raw,id=" + name + ",file=" + path, "-device", "nvme,serial=" + name + ",drive=" + name,
	}
}

// emptyDisk makes a file of zeros.
func emptyDisk(t *testing.T, path string, size int64) string {
	t.Helper()
	hosttest.Must(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, size)))
	return path
}

// archiveDisk makes a disk that holds files for the machine, as a tar archive.
func archiveDisk(t *testing.T, path string, files map[string][]byte) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, data := range files {
		hosttest.Must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data))}))
		_, err := w.Write(data)
		hosttest.Must(t, err)
	}
	hosttest.Must(t, errors.Join(w.Close(), os.WriteFile(path, b.Bytes(), 0o600)))
	hosttest.Must(t, os.Truncate(path, int64(b.Len()+1<<20)/4096*4096))
	return path
}

// unpack reads what archiveDisk has made.
func unpack(t *testing.T, path string) map[string][]byte {
	t.Helper()
	f, err := os.Open(path)
	hosttest.Must(t, err)
	defer f.Close() // only read
	files := map[string][]byte{}
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		hosttest.Must(t, err)
		files[h.Name], err = io.ReadAll(r)
		hosttest.Must(t, err)
	}
}
