package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/task"
)

// Namespace is a network apart from that of the host. Its methods may be called from several goroutines.
type Namespace struct {
	file  *os.File
	links *netlink.Handle
}

// ErrNotPermitted says that this process may not make networks.
var ErrNotPermitted = errors.New("making networks needs root, or a kernel that lets users make user namespaces " +
	"(sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)")

// New makes a network in which there is nothing but loopback. The caller closes it.
func New() (*Namespace, error) {
	file, err := unshared()
	if errors.Is(err, unix.EPERM) {
		return nil, ErrNotPermitted
	}
	if err != nil {
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	n := &Namespace{file: file}
	err = n.Do(func() error {
		var err error
		n.links, err = netlink.NewHandle() // its socket is made now, and here
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open network namespace: %w", err), file.Close())
	}
	if err := n.up("lo"); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func unshared() (*os.File, error) {
	var file *os.File
	err := elsewhere(func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() error {
		var err error
		file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	return file, err
}

// elsewhere runs fn on a thread that move has brought into another namespace. The thread does not come back: it ends
// with its goroutine, because the root of a user namespace may not enter the host's network again.
func elsewhere(move, fn func() error) error {
	done := make(chan error, 1)
	task.Background("network namespace", func() {
		runtime.LockOSThread()
		done <- task.Run(context.Background(), "network namespace", func(context.Context) error {
			if err := move(); err != nil {
				return err
			}
			return fn()
		})
	})
	return <-done
}

// Do runs fn with its thread in the namespace. Sockets that fn itself makes belong to the namespace for good; goroutines
// and processes that it starts may not.
func (n *Namespace) Do(fn func() error) error {
	return elsewhere(func() error {
		if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return nil
	}, fn)
}

// Path is a file that stands for the namespace, for as long as this process holds it.
func (n *Namespace) Path() string {
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.file.Fd())
}

// Prefix goes before the arguments of a program that is to run in the namespace. nsenter replaces itself with it.
func (n *Namespace) Prefix() []string { return []string{"nsenter", "--net=" + n.Path(), "--"} }

// Command is a program that will run in the namespace and ends with this process.
func (n *Namespace) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	argv := append(append(n.Prefix(), name), args...)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Close lets go of the namespace. It is gone when nothing runs in it any more and its sockets are closed.
func (n *Namespace) Close() error {
	n.links.Close()
	return n.file.Close()
}

func (n *Namespace) up(name string) error {
	link, err := n.links.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find network device %s: %w", name, err)
	}
	if err := n.links.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up network device %s: %w", name, err)
	}
	return nil
}
