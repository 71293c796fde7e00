package pid1

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// persistEtc mounts the directory etc of the state disk on target and makes sure of a machine-id in it. The
// directory is mounted, rather than single files linked, because careful programs replace files by rename.
func persistEtc(stateDir, target string) error {
	source := filepath.Join(stateDir, "etc")
	if err := os.MkdirAll(source, 0o755); err != nil {
		return fmt.Errorf("make persistent /etc: %w", err)
	}
	if err := (mount{source, target, "", unix.MS_BIND, ""}).do(); err != nil {
		return err
	}
	return ensureMachineID(filepath.Join(target, "machine-id"))
}

// ensureMachineID writes a random id in the form of machine-id(5) unless there is one already. It is complete
// or absent, whenever the power fails.
func ensureMachineID(path string) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".machine-id-*")
	if err != nil {
		return fmt.Errorf("create machine-id: %w", err)
	}
	_, err = f.WriteString(newMachineID() + "\n")
	if err := errors.Join(err, f.Chmod(0o444), f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write machine-id: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("put machine-id in place: %w", err)
	}
	// For the new directory entries; a power failure now must not give the machine another id.
	unix.Sync()
	return nil
}

// newMachineID marks the id as a version 4 UUID, as systemd does.
func newMachineID() string {
	id := make([]byte, 16)
	// crypto/rand.Read never fails; it ends the process when the kernel has no randomness.
	rand.Read(id)
	id[6] = id[6]&0x0f | 0x40
	id[8] = id[8]&0x3f | 0x80
	return hex.EncodeToString(id)
}

// savedHostname reads hostname(5); "" when there is none.
func savedHostname(etc string) (string, error) {
	data, err := os.ReadFile(filepath.Join(etc, "hostname"))
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read host name: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}
