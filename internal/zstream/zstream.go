// Package zstream reads zstd streams that come from outside, and compresses data of our own. Each frame of a stream may
// ask for a window of its own (RFC 8878, 3.1.1.1.2): one limit holds for all of them, on both sides, so that the
// catalogue takes no image that an installer would refuse in the middle.
package zstream

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/zstd"
)

// MaxWindow is how far back a stream may refer, in bytes. It is what zstd takes up to level 19, four times, and bounds
// the memory of a decoder whatever the size of the stream.
const MaxWindow = 32 << 20

// ErrWindow is of a stream of which a frame, the first or a later one, asks for a larger window than MaxWindow.
var ErrWindow = fmt.Errorf("a zstd frame needs a window of more than %d MiB", MaxWindow>>20)

// Reader reads the bytes that were compressed.
type Reader struct{ z *zstd.Decoder }

// NewReader returns a Reader of r. The options are about concurrency and memory, and not about the window.
func NewReader(r io.Reader, options ...zstd.DOption) (*Reader, error) {
	// A frame without a window of its own has one of its content's size; its limit is that of the window.
	z, err := zstd.NewReader(r, append(options, zstd.WithDecoderMaxWindow(MaxWindow),
		zstd.WithDecoderMaxMemory(math.MaxInt64))...)
	if err != nil {
		return nil, err
	}
	return &Reader{z}, nil
}

// Read implements io.Reader. Its errors are those of the source, of package zstd, or ErrWindow.
func (r *Reader) Read(b []byte) (int, error) {
	n, err := r.z.Read(b)
	if errors.Is(err, zstd.ErrWindowSizeExceeded) || errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		err = ErrWindow
	}
	return n, err
}

// Close implements io.Closer. It does not close the source.
func (r *Reader) Close() error {
	r.z.Close()
	return nil
}

// Compress returns data as one frame that holds its length. The same data has the same bytes. The window is smaller
// than the limit of kernels (128 MiB).
func Compress(data []byte) ([]byte, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return z.EncodeAll(data, nil), z.Close()
}
