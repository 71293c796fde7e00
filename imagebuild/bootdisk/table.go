package bootdisk

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/ingot-metal/ingot/internal/gpt"
)

const (
	sector = 512
	mib    = 1 << 20

	bootCodeLen = 440 // of the MBR; what follows is the disk signature and the partition entries

	// legacyBootable is bit 2 of the attributes: "legacy BIOS bootable" (UEFI 2.10, table 5.8).
	legacyBootable = 1 << 2
)

// Types of partitions (The Discoverable Partitions Specification), in the byte order of the disk.
var (
	typeESP = gpt.GUID{0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b}
	// x86-64
	typeRoot = gpt.GUID{0xe3, 0xbc, 0x68, 0x4f, 0xcd, 0xe8, 0xb1, 0x4d, 0x96, 0xe7, 0xfb, 0xca, 0xf9, 0x84, 0xb7, 0x09}
)

// part is a partition whose content is a file of whole MiB.
type part struct {
	name       string
	kind       gpt.GUID
	attributes uint64
	file       string
	size       int64
}

// disk returns the whole disk: the table, the partitions one after the other from the first MiB on, and a last MiB with
// the backup table. Identities are derived from the seed.
func disk(bootCode []byte, seed string, parts []part) (io.ReadCloser, int64, error) {
	size := int64(gpt.HeadSize + gpt.TailSize)
	for _, p := range parts {
		size += p.size
	}
	head, tail, err := table(bootCode, seed, parts, size)
	if err != nil {
		return nil, 0, fmt.Errorf("make partition table: %w", err)
	}
	r, err := join(head, parts, tail)
	return r, size, err
}

func table(bootCode []byte, seed string, parts []part, size int64) (head, tail []byte, err error) {
	if len(bootCode) > bootCodeLen {
		return nil, nil, fmt.Errorf("boot code has %d bytes, room for %d", len(bootCode), bootCodeLen)
	}
	head = make([]byte, gpt.HeadSize)
	copy(head, bootCode)
	t := gpt.New(head, sector, guid(seed, "disk"))
	at := int64(gpt.HeadSize)
	for _, p := range parts {
		if p.size%mib != 0 {
			return nil, nil, fmt.Errorf("partition %s is not of whole MiB", p.name)
		}
		_, err := t.Add(gpt.Partition{
			Name: p.name, Type: p.kind, ID: guid(seed, p.name), Attributes: p.attributes, Offset: at, Size: p.size,
		})
		if err != nil {
			return nil, nil, err
		}
		at += p.size
	}
	tail, err = t.Fit(head, size)
	return head, tail, err
}

// guid returns the identity that belongs to a name of the image, always the same.
func guid(seed, name string) gpt.GUID { return gpt.GUIDOf(seed, name) }

// joined reads files one after the other.
type joined struct {
	io.Reader
	files []*os.File
}

func join(head []byte, parts []part, tail []byte) (*joined, error) {
	j := &joined{}
	readers := []io.Reader{newBytes(head)}
	for _, p := range parts {
		f, err := os.Open(p.file)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open partition %s: %w", p.name, err), j.Close())
		}
		j.files = append(j.files, f)
		readers = append(readers, io.LimitReader(f, p.size))
	}
	j.Reader = io.MultiReader(append(readers, newBytes(tail))...)
	return j, nil
}

// Close implements io.Closer.
func (j *joined) Close() error {
	for _, f := range j.files {
		f.Close() // only read
	}
	return nil
}
