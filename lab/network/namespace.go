package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Namespace is a network apart from that of the host. Its methods may be called from several goroutines.
type Namespace struct {
	keeper keeper
	file   *os.File
	links  *netlink.Handle
}

// ErrNotPermitted is returned when this process may not make networks.
var ErrNotPermitted = errors.New("making networks needs root, or a kernel that lets users make user namespaces " +
	"(sysctl kernel.unprivileged_userns_clone, user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns)")

// New makes a network in which there is nothing but loopback. The caller closes it.
func New() (*Namespace, error) {
	n := &Namespace{keeper: newKeeper()}
	err := n.keeper.do(n.enter)
	switch {
	case errors.Is(err, unix.EPERM):
		n.keeper.leave()
		return nil, ErrNotPermitted
	case err != nil:
		n.keeper.leave()
		return nil, fmt.Errorf("make network namespace: %w", err)
	}
	if err := n.up("lo"); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// enter brings this thread into a new network.
func (n *Namespace) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	file, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	links, err := netlink.NewHandle() // its socket is made now, and here
	if err != nil {
		return errors.Join(err, file.Close())
	}
	n.file, n.links = file, links
	return nil
}

// Do runs fn on a thread in the namespace. Sockets that fn itself makes belong to the namespace for good; goroutines
// and processes that it starts may not. No Do may be called from within another.
func (n *Namespace) Do(fn func() error) error { return n.keeper.do(fn) }

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
	n.keeper.leave()
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
