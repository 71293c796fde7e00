package cmdline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// siteCapabilities are what serving a segment takes: ports under 1024, and sockets for packets and for router
// advertisements (capabilities(7)).
var siteCapabilities = []int{unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_RAW}

// becomeUser makes a process that was started as root another user's, with siteCapabilities and nothing else, and
// begins this program anew as that user: it then never comes back. The directories become that user's. It does nothing
// for a process that isn't root's, as after it, or without a name.
func becomeUser(name string, directories ...string) error {
	if name == "" || os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := lookUp(name)
	if err != nil || uid == 0 {
		return err
	}
	for _, dir := range directories {
		if err := handOver(dir, uid, gid); err != nil {
			return fmt.Errorf("give %s to user %s: %w", dir, name, err)
		}
	}
	// Capabilities belong to threads. The one that executes the program is the one that survives.
	runtime.LockOSThread()
	if err := dropTo(uid, gid); err != nil {
		return fmt.Errorf("become user %s: %w", name, err)
	}
	return fmt.Errorf("start anew as user %s: %w", name, syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

func lookUp(name string) (uid, gid int, err error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, 0, fmt.Errorf("site.user: %w", err)
	}
	uid, uerr := strconv.Atoi(u.Uid)
	gid, gerr := strconv.Atoi(u.Gid)
	if err := errors.Join(uerr, gerr); err != nil {
		return 0, 0, fmt.Errorf("site.user %s: %w", name, err)
	}
	return uid, gid, nil
}

// handOver makes a directory and changes the owner of it and of all in it. It changes the owner of links and does not
// follow them.
func handOver(dir string, uid, gid int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir) // no link that appears there meanwhile leads out of it
	if err != nil {
		return err
	}
	err = fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(path, uid, gid)
	})
	return errors.Join(err, root.Close())
}

// dropTo changes user and groups and keeps siteCapabilities, over an execution too.
func dropTo(uid, gid int) error {
	if err := boundTo(siteCapabilities); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keep capabilities: %w", err)
	}
	if err := errors.Join(syscall.Setgroups([]int{gid}), syscall.Setgid(gid), syscall.Setuid(uid)); err != nil {
		return err
	}
	var mask uint32
	for _, c := range siteCapabilities {
		mask |= 1 << c
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: mask, Permitted: mask, Inheritable: mask}}
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	for _, c := range siteCapabilities {
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uintptr(c), 0, 0); err != nil {
			return fmt.Errorf("keep capability %d: %w", c, err)
		}
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// boundTo takes every other capability out of reach for good.
func boundTo(keep []int) error {
	for c := range 64 {
		wanted := false
		for _, k := range keep {
			wanted = wanted || c == k
		}
		if wanted {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			return nil // the kernel has no more
		}
		if err != nil {
			return fmt.Errorf("give up capability %d: %w", c, err)
		}
	}
	return nil
}
