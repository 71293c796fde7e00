package localpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// owner is who runs the server. PostgreSQL refuses to run as root, so root runs it as another user.
type owner struct {
	name     string
	uid, gid uint32
	switches bool
}

// systemUsers are tried in this order when we are root: the one of the distribution's package, then our own.
var systemUsers = []string{"postgres", "ingot-controller", "ingot"}

func currentOwner() (owner, error) { return ownerFor(os.Geteuid(), os.Getegid(), user.Lookup) }

func ownerFor(uid, gid int, lookup func(string) (*user.User, error)) (owner, error) {
	if uid != 0 {
		return owner{name: strconv.Itoa(uid), uid: uint32(uid), gid: uint32(gid)}, nil
	}
	for _, name := range systemUsers {
		u, err := lookup(name)
		var unknown user.UnknownUserError
		if errors.As(err, &unknown) {
			continue
		}
		if err != nil {
			return owner{}, fmt.Errorf("look up user %s: %w", name, err)
		}
		return switchTo(u)
	}
	return owner{}, fmt.Errorf("PostgreSQL does not run as root and none of the users %v exists", systemUsers)
}

func switchTo(u *user.User) (owner, error) {
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return owner{}, fmt.Errorf("parse uid of %s: %w", u.Username, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return owner{}, fmt.Errorf("parse gid of %s: %w", u.Username, err)
	}
	return owner{name: u.Username, uid: uint32(uid), gid: uint32(gid), switches: true}, nil
}

// command prepares a program that runs as the owner in dir. It has a session of its own, since a Ctrl-C at the terminal
// is for us. It has nothing of our environment: PGPORT and the like would affect it.
func (o owner) command(dir, path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if o.switches {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: o.uid, Gid: o.gid}
	}
	return cmd
}

// makeDir makes path and changes its owner. A foreign path is refused.
func (o owner) makeDir(path string, mode os.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	if o.switches {
		if err := os.Lchown(path, int(o.uid), int(o.gid)); err != nil {
			return err
		}
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || st.Uid != o.uid {
		return fmt.Errorf("%s is not a directory of user %s", path, o.name)
	}
	return os.Chmod(path, mode)
}

// canEnter tries, as the owner, to enter dir: with a data directory below one of mode 0700 PostgreSQL's own message
// is hard to understand.
func (o owner) canEnter(dir string) error {
	if !o.switches {
		return nil
	}
	if err := o.command("/", "/bin/sh", "-c", `cd "$0"`, dir).Run(); err != nil {
		return fmt.Errorf("user %s cannot enter %s: give the directories above it the x permission for others (chmod o+x) "+
			"or choose another place", o.name, dir)
	}
	return nil
}
