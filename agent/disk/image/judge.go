package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/internal/gpt"
)

// Judge decides by the first firstboot.ProbeSize bytes of a partition whether its file system can be mounted where the
// image is written; "" is yes.
type Judge func(p gpt.Partition, head []byte) string

// whole refuses an image that ends before its last partition does: the disk would lack the rest.
func whole(table *gpt.Table, rawSize int64) error {
	for _, p := range table.Partitions() {
		if p.Offset+p.Size > rawSize {
			return notSupported("the image is cut: its partition %d ends at byte %d, and the image at %d", p.Number,
				p.Offset+p.Size, rawSize)
		}
	}
	return nil
}

// judgeRoot reads an image as far as the beginning of its likeliest root, and refuses one that could not be mounted. It
// reads a stream of its own, since the one that is written can't go back.
func judgeRoot(
	ctx context.Context, open func(context.Context) (io.ReadCloser, error), all []gpt.Partition, judge Judge,
) (err error) {
	likely := slices.DeleteFunc(firstboot.Candidates(all), func(p gpt.Partition) bool {
		return p.Name == StateName || p.Size < firstboot.ProbeSize
	})
	if judge == nil || len(likely) == 0 {
		return nil
	}
	raw, err := open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	order := slices.Clone(likely)
	slices.SortFunc(order, func(a, b gpt.Partition) int { return int(max(min(a.Offset-b.Offset, 1), -1)) })
	heads, at := map[int][]byte{}, int64(0)
	for _, p := range order {
		if p.Offset < at {
			continue // it overlaps the one before
		}
		head := make([]byte, firstboot.ProbeSize)
		if err := skip(raw, p.Offset-at); err != nil {
			return streamEnd(p.Offset, err)
		}
		if _, err := io.ReadFull(raw, head); err != nil {
			return streamEnd(p.Offset, err)
		}
		heads[p.Number], at = head, p.Offset+int64(len(head))
		if root, known := rootAmong(likely, heads); known {
			if root == nil {
				return nil
			}
			if why := judge(*root, heads[root.Number]); why != "" {
				return notSupported("partition %d cannot be mounted here: %s", root.Number, why)
			}
			return nil
		}
	}
	return nil
}

// rootAmong returns the first of the likely roots that holds a file system. known is false while one that is likelier
// has not been read.
func rootAmong(likely []gpt.Partition, heads map[int][]byte) (root *gpt.Partition, known bool) {
	for i, p := range likely {
		head, read := heads[p.Number]
		if !read {
			return nil, false
		}
		switch firstboot.FileSystem(head) {
		case "ext4", "xfs", "btrfs":
			return &likely[i], true
		}
	}
	return nil, true
}

// skipper is a stream that leaves out bytes without reading them.
type skipper interface{ skip(n int64) }

func skip(r io.Reader, n int64) error {
	if s, ok := r.(skipper); ok {
		s.skip(n)
		return nil
	}
	_, err := io.CopyN(io.Discard, r, n)
	return err
}

// streamEnd names a stream that ended early.
func streamEnd(at int64, err error) error {
	var known *Error
	if !errors.As(err, &known) && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return mismatch("the image ends before byte %d, where one of its partitions is", at)
	}
	return orUnexplained(err)
}

// packedAs holds the first bytes of compressed files and of qcow2, by format. Such a file may be declared raw.
var packedAs = []struct {
	at    int
	magic string
	name  string
}{
	{0, "BZh", "compressed with bzip2"}, {0, "\x04\x22\x4d\x18", "compressed with lz4"},
	{0, "\x02\x21\x4c\x18", "compressed with lz4"}, {0, "\x1f\x8b", "compressed with gzip"},
	{0, "\xfd7zXZ\x00", "compressed with xz"}, {0, "\x5d\x00\x00", "compressed with lzma"},
	{0, "\x28\xb5\x2f\xfd", "compressed with zstd"}, {0, "PK\x03\x04", "a zip archive"}, {0, "QFI\xfb", "a qcow2 image"},
	{0, "KDMV", "a VMDK image"}, {0, "vhdxfile", "a VHDX image"}, {0, "conectix", "a VHD image"},
	{64, "\x7f\x10\xda\xbe", "a VDI image"}, {257, "ustar", "a tar archive"},
}

// otherFormat names what a file is that was taken for a raw image; "" where nothing is known.
func otherFormat(head []byte) string {
	for _, p := range packedAs {
		if len(head) >= p.at+len(p.magic) && string(head[p.at:p.at+len(p.magic)]) == p.magic {
			return fmt.Sprintf("the file is %s; have it imported, or give it as raw or raw.zst", p.name)
		}
	}
	return ""
}
