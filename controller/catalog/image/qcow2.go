package image

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
	qcow2image "github.com/lima-vm/go-qcow2reader/image"
	"github.com/lima-vm/go-qcow2reader/image/qcow2"
	qcow2log "github.com/lima-vm/go-qcow2reader/log"

	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/zstream"
)

// Offsets in the header of a qcow2 file, and the feature bit of an external data file (QEMU, docs/interop/qcow2.txt).
const (
	qcow2BackingOffset = 8
	qcow2ClusterOffset = 20
	qcow2SizeOffset    = 24
	qcow2CryptOffset   = 32
	qcow2L1Offset      = 36
	qcow2Features      = 72
	qcow2HeaderLen     = 104
	// Features that a reader may meet and go on: an unclean end, which concerns counters of no use here, and another
	// compression than deflate.
	qcow2Dirty           = 1 << 0
	qcow2Corrupt         = 1 << 1
	qcow2ExternalData    = 1 << 2
	qcow2CompressionType = 1 << 3
	// QEMU's own limit of the first table, in entries of 8 bytes.
	qcow2MaxL1 = 32 << 20 / 8
)

// checkQcow2 refuses a file that is not all of its image: it would have us open other files of this machine.
func checkQcow2(r io.ReaderAt) error {
	var h [qcow2HeaderLen]byte
	if _, err := r.ReadAt(h[:], 0); err != nil {
		return unsupported("the file is too short for a qcow2 image")
	}
	version, features := binary.BigEndian.Uint32(h[4:]), uint64(0)
	if version == 3 {
		features = binary.BigEndian.Uint64(h[qcow2Features:])
	}
	switch {
	case string(h[:4]) != string(magicQcow2):
		return unsupported("the file is no qcow2 image")
	case version != 2 && version != 3:
		return unsupported("qcow2 version %d is not known", version)
	case binary.BigEndian.Uint64(h[qcow2BackingOffset:]) != 0:
		return unsupported("the qcow2 image has a backing file; make a whole one: qemu-img convert")
	case features&qcow2ExternalData != 0:
		return unsupported("the qcow2 image has its data in another file; make a whole one: qemu-img convert")
	case features&qcow2Corrupt != 0:
		return unsupported("the qcow2 image is marked as corrupt")
	case features&^(qcow2Dirty|qcow2CompressionType) != 0:
		return unsupported("the qcow2 image has features that are not known here; make a plain one: qemu-img convert")
	case binary.BigEndian.Uint32(h[qcow2CryptOffset:]) != 0:
		return unsupported("the qcow2 image is encrypted")
	case binary.BigEndian.Uint64(h[qcow2SizeOffset:]) > maxRaw:
		return unsupported("the image is bigger than %d TiB", int64(maxRaw)>>40)
	}
	bits, l1 := binary.BigEndian.Uint32(h[qcow2ClusterOffset:]), binary.BigEndian.Uint32(h[qcow2L1Offset:])
	if bits < 9 || bits > 21 || l1 > qcow2MaxL1 {
		return unsupported("the qcow2 image has clusters or tables of a size that is not allowed")
	}
	return nil
}

// The library keeps its decompressors in a package variable: zstd is none of its defaults, and newer images have it.
// Its warnings would go past our log; what matters comes as an error.
func init() {
	qcow2log.SetWarnFunc(nil)
	qcow2.SetDecompressor(qcow2.CompressionTypeZstd, func(r io.Reader) (io.ReadCloser, error) {
		return zstream.NewReader(r, zstd.WithDecoderConcurrency(1))
	})
}

// onlyQcow2 opens no image below another.
func onlyQcow2(io.ReaderAt, qcow2image.Type) (qcow2image.Image, error) {
	return nil, errors.New("not allowed")
}

// convert makes a raw.zst of a qcow2 image. The same image has the same bytes.
func (c *Catalogue) convert(ctx context.Context, got *blob.Writer) (*blob.Writer, raw, error) {
	if err := checkQcow2(got); err != nil {
		return nil, raw{}, err
	}
	img, err := qcow2.Open(got, onlyQcow2)
	if err == nil {
		err = img.Readable()
	}
	if err != nil {
		return nil, raw{}, unsupported("the qcow2 image cannot be read: %v", err)
	}
	arch, err := checkDisk(faultyAt{img}, img.Size())
	if err != nil {
		return nil, raw{}, err
	}
	w, err := c.cfg.Blobs.Create()
	if err != nil {
		return nil, raw{}, err
	}
	done := false
	defer func() {
		if !done {
			w.Release(c.cfg.Logger)
		}
	}()
	facts, err := compress(ctx, w, img)
	if err != nil {
		return nil, raw{}, err
	}
	done = true
	facts.arch = arch
	return w, facts, nil
}

func compress(ctx context.Context, w io.Writer, img qcow2image.Image) (raw, error) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return raw{}, err
	}
	enc.ResetContentSize(w, img.Size())
	sum := sha256.New()
	in := &limited{ctx: ctx, r: &faulty{r: faultyAt{img}, size: img.Size()}, most: maxRaw}
	n, err := io.CopyBuffer(io.MultiWriter(enc, sum), in, make([]byte, 1<<20))
	// The encoder of an image that ends early only complains about the length.
	if cerr := enc.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		if ctx.Err() != nil {
			return raw{}, context.Cause(ctx)
		}
		return raw{}, err
	}
	return raw{size: n, sum: hex.EncodeToString(sum.Sum(nil))}, nil
}

// truncated is the client's error: a file that was cut off on its way.
func truncated(at int64) *failure.Error {
	return failure.Invalid("IMAGE_UNSUPPORTED", "the qcow2 file ends early: the image's data at byte %d is not in it", at).
		WithField("image", "cut off")
}

// faulty reads an image from its start, and marks errors as the image's fault.
type faulty struct {
	r    faultyAt
	at   int64
	size int64
}

func (f *faulty) Read(p []byte) (int, error) {
	p = p[:min(int64(len(p)), f.size-f.at)]
	if len(p) == 0 {
		return 0, io.EOF
	}
	n, err := f.r.ReadAt(p, f.at)
	f.at += int64(n)
	return n, err
}

// faultyAt does so for reads at an offset, which ask for nothing behind the image's end.
type faultyAt struct{ r io.ReaderAt }

func (f faultyAt) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.r.ReadAt(p, off)
	switch {
	case n == len(p):
		return n, nil
	case err == nil, errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return n, truncated(off + int64(n))
	}
	return n, unsupported("the qcow2 image is damaged: %v", err)
}
