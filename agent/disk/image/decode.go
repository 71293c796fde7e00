package image

import (
	"context"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/ingot-metal/ingot/internal/zstream"
)

// Format is how the raw bytes are packed in the file.
type Format string

// The formats.
const (
	Raw     Format = "raw"
	RawZstd Format = "raw.zst"
)

// Open returns the raw bytes. Its errors are *Error, and so are those of what it returns.
func Open(ctx context.Context, s Source, format Format) (io.ReadCloser, error) {
	return Decode(s.open(ctx), format)
}

// Decode returns the raw bytes of a file, which it closes. Its errors are as those of Open.
func Decode(f io.ReadCloser, format Format) (io.ReadCloser, error) {
	switch format {
	case Raw:
		return f, nil
	case RawZstd:
		return decompress(f)
	}
	return nil, errors.Join(notSupported("images of format %q cannot be written, only %s and %s", format, Raw, RawZstd),
		f.Close())
}

func decompress(f io.ReadCloser) (io.ReadCloser, error) {
	z, err := zstream.NewReader(f, zstd.WithDecoderLowmem(true))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &decoded{z: z, f: f}, nil
}

type decoded struct {
	z *zstream.Reader
	f io.Closer
}

// Read implements io.Reader.
func (d *decoded) Read(b []byte) (int, error) {
	n, err := d.z.Read(b)
	var ours *Error
	switch {
	case err == nil, errors.Is(err, io.EOF), errors.As(err, &ours), errors.Is(err, context.Canceled):
	case errors.Is(err, zstream.ErrWindow):
		err = notSupported("the compressed image: %w", err)
	default:
		err = mismatch("the compressed image is damaged: %w", err)
	}
	return n, err
}

// Close implements io.Closer.
func (d *decoded) Close() error {
	return errors.Join(d.z.Close(), d.f.Close())
}
