package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ingot-metal/ingot/agent/pid1"
)

const (
	// TokenFile is where a state disk carries the bundle for the first enrolment.
	TokenFile = "bootstrap-token"

	stateDiskBytes = 64 << 20
)

// ErrExists says that a state disk is there already. It is never overwritten: it may be the only copy of a
// machine's identity.
var ErrExists = errors.New("state disk exists")

// StateDisk makes a raw 64 MiB ext4 image labelled pid1.StateLabel that holds the given files: path within the disk
// to content, all with mode 0600 since one of them is a secret. Needs mke2fs (package e2fsprogs).
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
	tool, err := mke2fs()
	if err != nil {
		return err
	}
	_, err = run(context.Background(), "", tool,
		"-q", "-F", "-t", "ext4", "-L", pid1.StateLabel, "-E", "root_owner=0:0", "-d", tree, disk)
	if err != nil {
		return fmt.Errorf("format state disk: %w", err)
	}
	return nil
}

// mke2fs looks beyond PATH, because an ordinary user's PATH lacks /usr/sbin on Debian.
func mke2fs() (string, error) {
	for _, name := range []string{"mke2fs", "/usr/sbin/mke2fs", "/sbin/mke2fs"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("mke2fs not found: install the package e2fsprogs")
}

// Sizes of templates, in bytes.
const (
	stateTemplateBytes = 32 << 20
	dataTemplateBytes  = 128 << 20
)

// stateTemplate makes an empty 32 MiB ext4 file system labelled pid1.StateLabel and compresses it. Kernels since 4.18
// mount it.
func stateTemplate(ctx context.Context) ([]byte, error) {
	return template(ctx, stateTemplateBytes, "metadata_csum", "-L", pid1.StateLabel)
}

// DataTemplate makes an empty 128 MiB ext4 file system with a journal of a quarter of that, and compresses it: what
// data disks of any size begin with. It can be given another UUID while it is mounted (Linux 6.0).
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
	tool, err := mke2fs()
	if err != nil {
		return nil, err
	}
	const features = "none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,64bit,flex_bg," +
		"sparse_super,large_file," +
		"huge_file,dir_nlink,extra_isize,"
	args := []string{"E2FSPROGS_FAKE_TIME=1", tool, "-q", "-F", "-t", "ext4", "-b", "4096", "-I", "256", "-i", "16384",
		"-m", "0", "-O", features + more, "-U", templateUUID,
		"-E", "hash_seed=" + templateUUID + ",root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0"}
	_, err = run(ctx, "", "env", append(append(args, options...), disk)...)
	if err != nil {
		return nil, fmt.Errorf("format template: %w", err)
	}
	data, err := os.ReadFile(disk)
	if err != nil {
		return nil, fmt.Errorf("read template: %w", err)
	}
	return zstdAll(data)
}

// templateUUID is of version 8, custom (RFC 9562). The label is what such a file system is found by.
const templateUUID = "696e676f-7400-8000-8000-737461746500"
