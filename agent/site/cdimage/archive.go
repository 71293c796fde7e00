package cdimage

import (
	"bytes"
	"fmt"
)

// Archive is a cpio archive with one file, which root alone may read, in the form that the kernel unpacks over an
// initramfs (Documentation/driver-api/early-userspace/buffer-format.rst, "newc").
func Archive(name string, data []byte) []byte {
	var out bytes.Buffer
	put := func(inode, mode, links int, name string, data []byte) {
		fmt.Fprintf(&out, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", inode, mode, 0, 0, links, 0,
			len(data), 0, 0, 0, 0, len(name)+1, 0, name)
		out.Write(make([]byte, -out.Len()&3))
		out.Write(data)
		out.Write(make([]byte, -out.Len()&3))
	}
	put(1, 0o100400, 1, name, data)
	put(0, 0, 1, "TRAILER!!!", nil)
	return out.Bytes()
}
