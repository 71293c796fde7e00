// Package swtpm runs TPMs in software (https://github.com/stefanberger/swtpm), for machines in QEMU and for tests.
//
// A TPM is a directory: its seeds are drawn when it starts in an empty one, and stay. Another directory is another TPM.
package swtpm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	binary      = "swtpm"
	setupBinary = "swtpm_setup"
	logFile     = "swtpm.log"
	// descriptor is the first that os/exec assigns in a child beside standard input, output and error.
	descriptor = 3
)

// Available returns an error with the package to install when there is no swtpm here.
func Available() error {
	if _, err := exec.LookPath(binary); err != nil {
		return errors.New("install the package swtpm")
	}
	return nil
}

// Make manufactures a TPM in a directory, with an endorsement key that a CA of its own has certified. It returns the
// paths of that CA's certificates.
func Make(ctx context.Context, dir string) (ca []string, err error) {
	state := filepath.Join(dir, "ca")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	options, config := filepath.Join(dir, "localca.options"), filepath.Join(dir, "localca.conf")
	root, issuer := filepath.Join(state, "swtpm-localca-rootca-cert.pem"), filepath.Join(state, "issuercert.pem")
	setup := filepath.Join(dir, "setup.conf")
	local, err := exec.LookPath("swtpm_localca")
	if err != nil {
		return nil, errors.New("install the package swtpm-tools")
	}
	files := map[string]string{
		config: "statedir = " + state + "\nsigningkey = " + filepath.Join(state, "signkey.pem") + "\nissuercert = " + issuer +
			"\ncertserial = " + filepath.Join(state, "certserial") + "\n",
		options: "--tpm-manufacturer id:00001014\n--tpm-model swtpm\n--tpm-version id:20191023\n--platform-manufacturer " +
			"Ingot\n" +
			"--platform-version 1\n--platform-model Laboratory\n",
		setup: "create_certs_tool=" + local + "\ncreate_certs_tool_config=" + config + "\ncreate_certs_tool_options=" +
			options + "\n",
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, setupBinary, "--tpm2", "--tpmstate", dir, "--create-ek-cert", "--config", setup)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("make a TPM: %w: %s", err, out)
	}
	return []string{root, issuer}, nil
}

// TPM is a TPM that runs.
type TPM struct {
	cmd *exec.Cmd
	log string
}

// Start powers the TPM of a directory on, for QEMU: file is the other end of its control channel, for a character
// device of type socket. The TPM ends when all copies of file are closed, or ctx ends. Wait must be called.
func Start(ctx context.Context, dir string) (t *TPM, file *os.File, err error) {
	return start(ctx, dir, "--ctrl", fmt.Sprintf("type=unixio,clientfd=%d", descriptor))
}

// Open powers the TPM of a directory on for this process: each write is a command, each read its answer.
func Open(ctx context.Context, dir string) (*TPM, net.Conn, error) {
	t, file, err := start(ctx, dir, "--fd", fmt.Sprint(descriptor), "--flags", "not-need-init,startup-clear")
	if err != nil {
		return nil, nil, err
	}
	defer file.Close() // the connection has its own copy
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close(), t.Wait())
	}
	return t, conn, nil
}

func start(ctx context.Context, dir string, arguments ...string) (*TPM, *os.File, error) {
	if err := Available(); err != nil {
		return nil, nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket pair: %w", err)
	}
	ours, its := os.NewFile(uintptr(pair[0]), "tpm"), os.NewFile(uintptr(pair[1]), "tpm")
	defer its.Close() // the child has its own copy
	t := &TPM{log: filepath.Join(dir, logFile)}
	t.cmd = exec.CommandContext(ctx, binary, append([]string{
		"socket", "--tpm2", "--tpmstate", "dir=" + dir, "--terminate", "--log", "file=" + t.log + ",level=1,truncate",
	}, arguments...)...)
	t.cmd.ExtraFiles = []*os.File{its}
	// A test binary that is killed must not leave TPMs behind.
	t.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := t.cmd.Start(); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start a TPM: %w", err), ours.Close())
	}
	return t, ours, nil
}

// Wait returns when the TPM is off.
func (t *TPM) Wait() error {
	err := t.cmd.Wait()
	if err == nil {
		return nil
	}
	said, readErr := os.ReadFile(t.log)
	return fmt.Errorf("TPM: %w: %s", errors.Join(err, readErr), strings.TrimSpace(string(said)))
}
