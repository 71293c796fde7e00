package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"

	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Compressions that vendors use and installers do not read.
const (
	formatGzip = "raw.gz"
	formatXZ   = "raw.xz"
)

var (
	magicGzip = []byte{0x1f, 0x8b}
	magicXZ   = []byte{0xfd, '7', 'z', 'X', 'Z', 0}
)

// maxDictionary bounds what an xz stream may have us hold, in bytes; xz -9 asks for as much.
const maxDictionary = 64 << 20

// decompress opens the stream of a file.
func decompress(format string, r io.Reader) (io.Reader, error) {
	if format == formatGzip {
		return gzip.NewReader(r)
	}
	return xz.NewReader(r, maxDictionary)
}

// recompress makes a raw.zst of a raw image in another compression. The same image has the same bytes.
func (c *Catalogue) recompress(ctx context.Context, got *blob.Writer, format string) (*blob.Writer, raw, error) {
	in, err := decompress(format, io.NewSectionReader(got, 0, got.Size()))
	if err != nil {
		return nil, raw{}, damaged(format, err)
	}
	w, err := c.cfg.Blobs.Create()
	if err != nil {
		return nil, raw{}, err
	}
	facts, err := transcode(w, &limited{ctx: ctx, r: &streamed{r: in, format: format}, most: c.cfg.MaxRaw})
	if err != nil {
		w.Release(c.cfg.Logger)
		return nil, raw{}, err
	}
	return w, facts, nil
}

func transcode(w io.Writer, in *limited) (raw, error) {
	enc, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return raw{}, err
	}
	sum, head := sha256.New(), &ends{}
	n, err := io.CopyBuffer(io.MultiWriter(enc, sum, head), in, make([]byte, copyBytes))
	if cerr := enc.Close(); err == nil {
		err = cerr
	}
	switch {
	case in.ctx.Err() != nil:
		return raw{}, context.Cause(in.ctx)
	case err != nil:
		return raw{}, err
	case bytes.HasPrefix(head.head, magicQcow2):
		return raw{}, unsupported("the file is a compressed qcow2 image; give the qcow2 image itself")
	}
	arch, err := checkDisk(head, n)
	return raw{size: n, sum: hex.EncodeToString(sum.Sum(nil)), arch: arch}, err
}

// streamed marks errors as the file's fault.
type streamed struct {
	r      io.Reader
	format string
}

// Read implements io.Reader.
func (s *streamed) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = damaged(s.format, err)
	}
	return n, err
}

func damaged(format string, err error) *failure.Error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, xz.ErrBuf):
		return unavailable("the stream of the %s file ends early", format)
	case errors.Is(err, gzip.ErrChecksum):
		return failure.Precondition("IMAGE_DIGEST_MISMATCH", "the %s file is damaged: its checksum is wrong", format)
	case errors.Is(err, xz.ErrMemlimit):
		return unsupported("the xz stream needs a dictionary of more than %d MiB; compress with xz -9 or less",
			maxDictionary>>20)
	}
	return unsupported("the file is no sound %s: %v", format, err)
}
