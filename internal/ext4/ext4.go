// Package ext4 makes the ext4 file systems of machines, as files: the disk that holds a machine's state, and the
// templates that an installer carries. It needs mke2fs (package e2fsprogs), and neither root nor mounts.
package ext4

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ingot-metal/ingot/internal/imagelayout"
	"github.com/ingot-metal/ingot/internal/zstream"
)

// Sizes in bytes.
const (
	stateDiskBytes     = 64 << 20
	stateTemplateBytes = 32 << 20
	dataTemplateBytes  = 128 << 20
)

// ErrExists is returned when the state disk exists. It is never overwritten: it may be the only copy of a
// machine's identity.
var ErrExists = errors.New("state disk exists")

// StateDisk makes a raw 64 MiB ext4 image labelled imagelayout.StateLabel that holds the files: path within the disk to
// content, all with mode 0600 since one of them is a secret.
func StateDisk(path string, files map[string][]byte) (err error) {
	if _, err := os.Stat(path); err == nil {
		return fmt.Errorf("%w: %s", ErrExists, path)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(path), ".state-*")
	if err != nil {
		return fmt.Errorf("make state disk: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	tree, disk := filepath.Join(scratch, "tree"), filepath.Join(scratch, "disk")
	if err := writeTree(tree, files); err != nil {
		return fmt.Errorf("fill state disk: %w", err)
	}
	if err := format(disk, tree); err != nil {
		return err
	}
	// Link fails when the target exists, where Rename would replace it.
	if err := os.Link(disk, path); err != nil {
		return fmt.Errorf("put state disk in place: %w", err)
	}
	return nil
}

func writeTree(dir string, files map[string][]byte) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for name, data := range files {
		name = strings.TrimPrefix(name, "/")
		if !filepath.IsLocal(name) {
			return fmt.Errorf("file name %q leads out of the disk", name)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func format(disk, tree string) error {
	f, err := os.OpenFile(disk, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make state disk: %w", err)
	}
	if err := errors.Join(f.Truncate(stateDiskBytes), f.Close()); err != nil {
		return fmt.Errorf("make state disk: %w", err)
	}
	err = mke2fs(context.Background(), nil, "-L", imagelayout.StateLabel, "-E", "root_owner=0:0", "-d", tree, disk)
	if err != nil {
		return fmt.Errorf("format state disk: %w", err)
	}
	return nil
}

// mke2fs makes an ext4 file system with the arguments, in this process's environment and with more variables. It looks
// beyond PATH, because an ordinary user's PATH lacks /usr/sbin on Debian.
func mke2fs(ctx context.Context, variables []string, args ...string) error {
	for _, name := range []string{"mke2fs", "/usr/sbin/mke2fs", "/sbin/mke2fs"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		cmd := exec.CommandContext(ctx, path, append([]string{"-q", "-F", "-t", "ext4"}, args...)...)
		cmd.Env = append(append(os.Environ(), "LC_ALL=C"), variables...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", cmd, err, bytes.TrimSpace(out))
		}
		return nil
	}
	return errors.New("mke2fs not found: install the package e2fsprogs")
}

// StateTemplate returns an empty 32 MiB ext4 file system labelled imagelayout.StateLabel, compressed by zstd. Kernels
// since 4.18 mount it.
func StateTemplate(ctx context.Context) ([]byte, error) {
	return template(ctx, stateTemplateBytes, "metadata_csum", "-L", imagelayout.StateLabel)
}

// DataTemplate returns an empty 128 MiB ext4 file system with a journal of a quarter of that, compressed by zstd. Data
// disks of any size begin with it. It accepts another UUID while it is mounted (Linux 6.0).
func DataTemplate(ctx context.Context) ([]byte, error) {
	return template(ctx, dataTemplateBytes, "metadata_csum,metadata_csum_seed", "-J", "size=32")
}

// template makes a file system and compresses it. Identifiers, times and features are given, so that the bytes depend
// neither on the day nor on this host's mke2fs.conf.
func template(ctx context.Context, size int64, more string, options ...string) (packed []byte, err error) {
	dir, err := os.MkdirTemp("", "ingot-template-*")
	if err != nil {
		return nil, fmt.Errorf("make template: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	disk := filepath.Join(dir, "disk")
	if err := os.WriteFile(disk, nil, 0o600); err != nil {
		return nil, fmt.Errorf("make template: %w", err)
	}
	if err := os.Truncate(disk, size); err != nil {
		return nil, fmt.Errorf("make template: %w", err)
	}
	const features = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg," +
		"sparse_super,large_file," +
		"huge_file,dir_nlink,extra_isize,"
	args := []string{"-b", "4096", "-I", "256", "-i", "16384",
		"-m", "0", "-O", features + more, "-U", templateUUID,
		"-E", "hash_seed=" + templateUUID + ",root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0"}
	if err := mke2fs(ctx, []string{"E2FSPROGS_FAKE_TIME=1"}, append(append(args, options...), disk)...); err != nil {
		return nil, fmt.Errorf("format template: %w", err)
	}
	data, err := os.ReadFile(disk)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	return zstream.Compress(data)
}

// templateUUID is of version 8, custom (RFC 9562). The label is what such a file system is found by.
const templateUUID = "696e676f-7400-8000-8000-737461746500"
