package firstboot

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// labelAttribute holds the SELinux label of a file.
const labelAttribute = "security.selinux"

// examples are files of the vendor's whose label fits the files that are added below a directory. The installer runs
// without a policy, and a file without a label is one that services may not read.
var examples = []struct{ below, like string }{
	{"usr/bin/", "usr/bin/env"},
	{"usr/lib/ingot/start-agent", "usr/bin/env"},
	{"etc/systemd/system/", "usr/lib/systemd/system/basic.target"},
	{"var/lib/cloud", "var/lib/cloud"},
}

// labelLike sets the label of a new file to that of its example, else to that of its directory. It does nothing on a
// file system without labels.
func labelLike(tree *os.Root, name string) error {
	for _, like := range append(exampleFor(name), path.Dir(name)) {
		label, err := getLabel(tree, like)
		if err != nil {
			return err
		}
		if label != nil {
			return setLabel(tree, name, label)
		}
	}
	return nil
}

func exampleFor(name string) []string {
	for _, e := range examples {
		if strings.HasPrefix(name, e.below) {
			return []string{e.like}
		}
	}
	return nil
}

// getLabel returns nil where there is no file, or no label.
func getLabel(tree *os.Root, name string) ([]byte, error) {
	f, err := tree.Open(name)
	if err != nil {
		return nil, nil //nolint:nilerr // an example that is not there, or cannot be read, is no example
	}
	defer f.Close() // only read
	buf := make([]byte, 256)
	n, err := unix.Fgetxattr(int(f.Fd()), labelAttribute, buf)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ERANGE) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the label of %s: %w", name, err)
	}
	return bytes.Clone(buf[:n]), nil
}

func setLabel(tree *os.Root, name string, label []byte) error {
	f, err := tree.Open(name)
	if err != nil {
		return fmt.Errorf("label %s: %w", name, err)
	}
	defer f.Close() // only its attribute is written
	if err := unix.Fsetxattr(int(f.Fd()), labelAttribute, label, 0); err != nil {
		return fmt.Errorf("label %s: %w", name, err)
	}
	return nil
}
