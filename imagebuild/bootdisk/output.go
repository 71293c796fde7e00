package bootdisk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// window bounds the memory for unpacking an image, in bytes.
const window = 8 << 20

// Formats of an image file.
const (
	Raw     = "raw"
	RawZstd = "raw.zst"
	Qcow2   = "qcow2"
)

// Result describes an image file, as the image catalogue wants it.
type Result struct {
	File   string `json:"file"`
	Format string `json:"format"` // Raw or RawZstd
	// SHA256File is of the file and SHA256Raw of the raw bytes, as 64 hex digits.
	SHA256File string `json:"sha256_file"`
	SHA256Raw  string `json:"sha256_raw"`
	// SizeFile and SizeRaw are bytes.
	SizeFile int64 `json:"size_file"`
	SizeRaw  int64 `json:"size_raw"`
}

// formatOf goes by the name.
func formatOf(out string) string {
	if strings.HasSuffix(out, ".zst") {
		return RawZstd
	}
	return Raw
}

// write puts the disk into the file out, which is replaced only when the new one is complete.
func write(ctx context.Context, out string, disk io.Reader) (r Result, err error) {
	f, err := os.CreateTemp(filepath.Dir(out), "."+filepath.Base(out)+"-*")
	if err != nil {
		return r, fmt.Errorf("create image: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), ignoreGone(os.Remove(f.Name())))
		}
	}()
	r = Result{File: out, Format: formatOf(out)}
	file, raw := newCounter(f), newCounter(io.Discard)
	if err := pack(ctx, file, io.TeeReader(disk, raw), r.Format); err != nil {
		return r, fmt.Errorf("write image: %w", err)
	}
	if err := errors.Join(f.Chmod(0o644), f.Sync()); err != nil {
		return r, fmt.Errorf("write image: %w", err)
	}
	r.SHA256File, r.SizeFile = file.digest(), file.n
	r.SHA256Raw, r.SizeRaw = raw.digest(), raw.n
	if err := os.Rename(f.Name(), out); err != nil {
		return r, fmt.Errorf("put image in place: %w", err)
	}
	return r, f.Close()
}

func ignoreGone(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func pack(ctx context.Context, w io.Writer, disk io.Reader, format string) error {
	disk = &untilDone{ctx, disk}
	if format == Raw {
		_, err := io.Copy(w, disk)
		return err
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBetterCompression), zstd.WithWindowSize(window))
	if err != nil {
		return err
	}
	_, err = io.Copy(z, disk)
	return errors.Join(err, z.Close())
}

// untilDone ends a copy with its context.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (u *untilDone) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(b)
}

// counter hashes and counts what passes.
type counter struct {
	w io.Writer
	h hash.Hash
	n int64
}

func newCounter(w io.Writer) *counter { return &counter{w: w, h: sha256.New()} }

// Write implements io.Writer.
func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.h.Write(b[:n])
	c.n += int64(n)
	return n, err
}

func (c *counter) digest() string { return hex.EncodeToString(c.h.Sum(nil)) }
