package state

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Claim makes this process the only one that runs an agent on the directory, until release is called or the
// process ends (flock(2)). Another process in the meantime gets ErrInUse.
func Claim(dir string) (release func() error, err error) {
	f, err := os.OpenFile(filepath.Join(dir, "agent.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrInUse
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("claim %s: %w", dir, err), f.Close())
	}
	return func() error {
		// A child that has been forked and has not begun its program yet shares the file, and its lock, for a moment.
		return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
	}, nil
}
