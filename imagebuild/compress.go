package imagebuild

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/ingot-metal/ingot/internal/zstream"
)

// Compression is the format of the initramfs.
type Compression string

const (
	// None is the quickest to boot in an emulated machine, which would spend seconds unpacking.
	None Compression = "none"
	// Gzip is what every kernel unpacks.
	Gzip Compression = "gzip"
	// Zstd is for images that travel over a network: the smallest, and quick to unpack. Kernels take it since 5.9
	// when they are built with RD_ZSTD, as Debian's are.
	Zstd Compression = "zstd"
)

func pack(w io.Writer, entries []entry, c Compression) error {
	switch c {
	case None, "":
		return writeArchive(w, entries)
	case Gzip:
		return packGzip(w, entries)
	case Zstd:
		return packZstd(w, entries)
	default:
		return fmt.Errorf("unknown compression %q", c)
	}
}

// packGzip leaves the time and name fields of the gzip header empty, so that they can't differ.
func packGzip(w io.Writer, entries []entry) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := writeArchive(z, entries); err != nil {
		return err
	}
	return z.Close()
}

func packZstd(w io.Writer, entries []entry) error {
	var plain bytes.Buffer
	if err := writeArchive(&plain, entries); err != nil {
		return err
	}
	packed, err := zstream.Compress(plain.Bytes())
	if err != nil {
		return err
	}
	_, err = w.Write(packed)
	return err
}
