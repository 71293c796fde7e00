package image

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"

	"github.com/ingot-metal/ingot/internal/failure"
)

// checkBootFile refuses a file that is not of its kind: machines would run it with all rights.
func checkBootFile(kind string, got io.ReaderAt) error {
	head := make([]byte, 4096)
	n, err := got.ReadAt(head, 0)
	if err != nil && n == 0 {
		return unavailable("the file cannot be read").Wrap(err)
	}
	head = head[:n]
	var want string
	switch {
	case kind == "installer-kernel" && !isKernel(head):
		want = "a Linux kernel (bzImage, EFI stub or arm64 Image)"
	case kind == "installer-initrd" && !isInitrd(head):
		want = "an initramfs (cpio, or one compressed with zstd, gzip, xz or lz4)"
	case kind == "installer-uki" && !isPE(head):
		want = "a unified kernel image (an EFI program)"
	default:
		return nil
	}
	return failure.Precondition("IMAGE_UNSUPPORTED", "the file is not %s", want).WithField("image.kind",
		"the file is of another kind")
}

// isKernel knows the x86 boot protocol (Documentation/arch/x86/boot.rst), EFI programs, and the header of arm64
// (Documentation/arch/arm64/booting.rst).
func isKernel(head []byte) bool {
	return at(head, 0x1fe, []byte{0x55, 0xaa}) && at(head, 0x202, []byte("HdrS")) || at(head, 0x38, []byte("ARM\x64")) ||
		isPE(head)
}

// isPE knows an EFI program by the signature that its DOS header points to.
func isPE(head []byte) bool {
	if !at(head, 0, []byte("MZ")) || len(head) < 0x40 {
		return false
	}
	return at(head, int(binary.LittleEndian.Uint32(head[0x3c:])), []byte("PE\x00\x00"))
}

var initrdMagics = [][]byte{
	[]byte("070701"), []byte("070702"), magicZstd, {0x1f, 0x8b}, {0xfd, '7', 'z', 'X', 'Z', 0}, {0x02, 0x21, 0x4c, 0x18},
	{0x04, 0x22, 0x4d, 0x18},
}

func isInitrd(head []byte) bool {
	return slices.ContainsFunc(initrdMagics, func(m []byte) bool { return bytes.HasPrefix(head, m) })
}

func at(head []byte, offset int, want []byte) bool {
	return offset >= 0 && offset <= len(head) && bytes.HasPrefix(head[offset:], want)
}
