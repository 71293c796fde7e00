package bootdisk

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	qcow2image "github.com/lima-vm/go-qcow2reader/image"
	"github.com/lima-vm/go-qcow2reader/image/qcow2"

	"github.com/ingot-metal/ingot/internal/gpt"
	"github.com/ingot-metal/ingot/internal/zstream"
)

// Info describes the content of an image file.
type Info struct {
	Result
	// Table is "gpt", "mbr" or "none".
	Table      string          `json:"table"`
	DiskID     string          `json:"disk_id,omitempty"` // of a gpt
	Partitions []PartitionInfo `json:"partitions,omitempty"`
}

// PartitionInfo is one entry of a partition table. Offset and Size are bytes.
type PartitionInfo struct {
	Number int    `json:"number"`
	Name   string `json:"name,omitempty"`
	// Type is a GUID, or two hex digits in an MBR.
	Type   string `json:"type"`
	Offset int64  `json:"offset"`
	Size   int64  `json:"size"`
}

// Inspect reads all of an image file, whatever format its name suggests.
func Inspect(ctx context.Context, path string) (Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return Info{}, fmt.Errorf("open image: %w", err)
	}
	defer f.Close() // only read
	info := Info{Result: Result{File: path}}
	file := newCounter(io.Discard)
	if _, err := io.Copy(file, &untilDone{ctx, f}); err != nil {
		return info, fmt.Errorf("read image: %w", err)
	}
	info.SHA256File, info.SizeFile = file.digest(), file.n
	raw, err := info.open(f)
	if err != nil {
		return info, err
	}
	head := &firstBytes{}
	sum := newCounter(head)
	if _, err := io.Copy(sum, &untilDone{ctx, raw}); err != nil {
		return info, fmt.Errorf("unpack image: %w", err)
	}
	info.SHA256Raw, info.SizeRaw = sum.digest(), sum.n
	return info, info.readTable(head.Bytes())
}

// open goes by the first bytes (RFC 8878, 3.1.1; QEMU's docs/interop/qcow2.txt) and returns the raw bytes.
func (i *Info) open(f *os.File) (io.Reader, error) {
	magic := make([]byte, 4)
	if _, err := f.ReadAt(magic, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read image: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	switch {
	case binary.LittleEndian.Uint32(magic) == 0xfd2fb528:
		i.Format = RawZstd
		z, err := zstream.NewReader(f)
		if err != nil {
			return nil, fmt.Errorf("unpack image: %w", err)
		}
		return z, nil
	case string(magic) == "QFI\xfb":
		i.Format = Qcow2
		return openQcow2(f)
	default:
		i.Format = Raw
		return f, nil
	}
}

var errBacking = errors.New("the image needs another file")

// openQcow2 looks for a backing file itself, at byte 8, because the library does not bear that it can't be opened.
func openQcow2(f *os.File) (io.Reader, error) {
	header := make([]byte, 16)
	if _, err := f.ReadAt(header, 0); err != nil {
		return nil, fmt.Errorf("unpack image: %w", err)
	}
	if binary.BigEndian.Uint64(header[8:]) != 0 {
		return nil, fmt.Errorf("unpack image: %w: it has a backing file", errBacking)
	}
	q, err := qcow2.Open(f, func(io.ReaderAt, qcow2image.Type) (qcow2image.Image, error) { return nil, errBacking })
	if err == nil {
		err = q.Readable()
	}
	if err != nil {
		return nil, fmt.Errorf("unpack image: %w", err)
	}
	return io.NewSectionReader(q, 0, q.Size()), nil
}

// firstBytes keeps the first bytes that are written, which hold the partition table.
type firstBytes struct{ bytes.Buffer }

// Write implements io.Writer.
func (f *firstBytes) Write(b []byte) (int, error) {
	f.Buffer.Write(b[:min(len(b), gpt.HeadSize-f.Len())]) // never fails
	return len(b), nil
}

// readTable takes a table that is there and damaged for an error.
func (i *Info) readTable(head []byte) error {
	i.Table = "none"
	if len(head) < gpt.HeadSize || binary.LittleEndian.Uint16(head[510:]) != 0xaa55 {
		return nil
	}
	if !bytes.Equal(head[sector:sector+8], []byte("EFI PART")) {
		i.Table, i.Partitions = "mbr", mbrPartitions(head)
		return nil
	}
	t, err := gpt.Parse(head, sector)
	if err != nil {
		return err
	}
	i.Table, i.DiskID = "gpt", t.DiskID().String()
	for _, p := range t.Partitions() {
		i.Partitions = append(i.Partitions, PartitionInfo{
			Number: p.Number, Name: p.Name, Type: p.Type.String(), Offset: p.Offset, Size: p.Size,
		})
	}
	return nil
}

// mbrPartitions are the four primary ones.
func mbrPartitions(head []byte) []PartitionInfo {
	var out []PartitionInfo
	for n := range 4 {
		e := head[446+16*n : 446+16*(n+1)]
		if e[4] == 0 {
			continue
		}
		out = append(out, PartitionInfo{
			Number: n + 1, Type: fmt.Sprintf("%02x", e[4]),
			Offset: int64(binary.LittleEndian.Uint32(e[8:])) * sector, Size: int64(binary.LittleEndian.Uint32(e[12:])) * sector,
		})
	}
	return out
}
