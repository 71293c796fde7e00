package network

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/ingot-metal/ingot/internal/task"
)

// envUser is the user id that BecomeRoot came from.
const envUser = "INGOT_LAB_USER"

// BecomeRoot does nothing for root. For other users it runs this program again, with the same arguments, as the root of
// a user namespace. It ends this process as that one ends, and returns only when the kernel doesn't allow that.
func BecomeRoot() error {
	if os.Geteuid() == 0 {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	AsRoot(cmd)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotPermitted, err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	task.Background("pass signals on", func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	})
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	os.Exit(cmd.ProcessState.ExitCode())
	return nil
}

// userNamespace maps one user and one group; that is what the kernel lets everybody do (user_namespaces(7)).
func userNamespace(uid, gid, hostUID, hostGID int) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: uid, HostID: hostUID, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: gid, HostID: hostGID, Size: 1}},
	}
}

// AsUser takes back what BecomeRoot did, for a program that refuses to run as root. It changes nothing for real root.
func AsUser(attr *syscall.SysProcAttr) *syscall.SysProcAttr {
	var uid, gid int
	if _, err := fmt.Sscanf(os.Getenv(envUser), "%d:%d", &uid, &gid); err != nil {
		return attr
	}
	mapped := userNamespace(uid, gid, 0, 0)
	mapped.Setsid, mapped.Pdeathsig = attr.Setsid, attr.Pdeathsig
	return mapped
}

// AsRoot makes cmd run as the root of a user namespace of its own.
func AsRoot(cmd *exec.Cmd) {
	cmd.Env = append(cmd.Environ(), fmt.Sprintf("%s=%d:%d", envUser, os.Geteuid(), os.Getegid()))
	cmd.SysProcAttr = userNamespace(0, 0, os.Geteuid(), os.Getegid())
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
