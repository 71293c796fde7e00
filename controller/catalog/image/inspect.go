package image

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/zstream"
)

const (
	formatRaw   = "raw"
	formatZstd  = "raw.zst"
	formatQcow2 = "qcow2"

	kindOS = "os"

	// maxRaw bounds what a small file may claim to be, unless the configuration has less: 4 TiB.
	maxRaw = 4 << 40
	// stateRoom is for the partition that an installer adds at the end of the disk.
	stateRoom = 64 << 20
)

func unsupported(format string, args ...any) *failure.Error {
	return failure.Precondition("IMAGE_UNSUPPORTED", format, args...)
}

// inspect finds out what the bytes are, and makes the whole entry for them. The file to keep is the one that came or,
// where it is converted, a new one.
func (c *Catalogue) inspect(
	ctx context.Context, said *baremetalv1.Image, got *blob.Writer,
) (*baremetalv1.Image, *blob.Writer, error) {
	if e := matches("sha256_source", said.GetSha256Source(), got.SHA256()); e != nil {
		return nil, nil, e
	}
	entry, file := proto.CloneOf(said), got
	facts := raw{size: got.Size(), sum: got.SHA256()}
	var err error
	switch entry.Format = formatOf(said, got); {
	case entry.GetKind() != kindOS:
		err = checkBootFile(entry.GetKind(), got)
	case entry.GetFormat() == formatRaw:
		facts.arch, err = checkDisk(got, got.Size())
	case entry.GetFormat() == formatZstd:
		facts, err = c.unpacked(ctx, got)
	case entry.GetFormat() == formatQcow2:
		entry.Format = formatZstd
		file, facts, err = c.convert(ctx, got)
	case entry.GetFormat() == formatGzip, entry.GetFormat() == formatXZ:
		file, facts, err = c.recompress(ctx, got, entry.GetFormat())
		entry.Format = formatZstd
	}
	if err == nil {
		err = complete(entry, said, got, file, facts)
	}
	if err != nil {
		if file != nil && file != got {
			file.Release(c.cfg.Logger)
		}
		return nil, nil, err
	}
	return entry, file, nil
}

// raw has the size and the digest of the bytes on the disk that the image will make.
type raw struct {
	size int64
	sum  string
	// arch that the disk's partitions name; empty where they name none.
	arch string
}

var (
	magicQcow2 = []byte("QFI\xfb")
	magicZstd  = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// formatOf believes the caller, and else the first bytes.
func formatOf(said *baremetalv1.Image, got io.ReaderAt) string {
	if said.GetKind() != kindOS {
		return formatRaw
	}
	if said.GetFormat() != "" {
		return said.GetFormat()
	}
	var head [6]byte
	if _, err := got.ReadAt(head[:], 0); err != nil {
		return formatRaw // shorter than any image: refused as one
	}
	switch {
	case bytes.HasPrefix(head[:], magicQcow2):
		return formatQcow2
	case bytes.HasPrefix(head[:], magicZstd), isSkippable([4]byte(head[:])):
		return formatZstd
	case bytes.HasPrefix(head[:], magicGzip):
		return formatGzip
	case bytes.Equal(head[:], magicXZ):
		return formatXZ
	}
	return formatRaw
}

// isSkippable knows a frame that zstd decoders skip (RFC 8878, 3.1.2): pzstd puts one before each frame.
func isSkippable(head [4]byte) bool {
	return head[0]&0xf0 == 0x50 && head[1] == 0x2a && head[2] == 0x4d && head[3] == 0x18
}

// complete fills the entry with what was found, and refuses it where the caller has announced something else.
func complete(entry, said *baremetalv1.Image, got, file *blob.Writer, facts raw) error {
	entry.Sha256File, entry.FileSizeBytes = file.SHA256(), file.Size()
	entry.Sha256Raw, entry.SizeBytes = facts.sum, facts.size
	entry.Sha256Source = ""
	if file != got {
		entry.Sha256Source = got.SHA256()
	}
	if e := archMatches(said.GetArch(), facts.arch); e != nil {
		return e
	}
	entry.Arch = cmp.Or(said.GetArch(), facts.arch, defaultArch)
	if e := matches("sha256_raw", said.GetSha256Raw(), facts.sum); e != nil {
		return e
	}
	if e := matches("sha256_file", said.GetSha256File(), file.SHA256()); e != nil {
		if file != got {
			e = e.WithField("image.sha256_source", "the digest of a file that is converted goes here")
		}
		return e
	}
	if n := said.GetSizeBytes(); n != 0 && n != facts.size {
		return unavailable("the image has %d raw bytes, not the %d announced", facts.size, n).WithField("image.size_bytes",
			"differs")
	}
	if n := said.GetFileSizeBytes(); n != 0 && n != file.Size() && n != got.Size() {
		return unavailable("the file has %d bytes, not the %d announced", got.Size(), n).WithField("image.file_size_bytes",
			"differs")
	}
	return minimumDisk(entry, said)
}

// defaultArch is that of an image without any sign of one.
const defaultArch = "amd64"

// archMatches refuses an image whose partitions are of another architecture than announced; "" is not known.
func archMatches(said, found string) error {
	if said == "" || found == "" || said == found {
		return nil
	}
	return unsupported("the image is announced as %s, and its partitions are of %s", said, found).
		WithField("image.arch", "not that of the image's partitions; leave it out to take theirs")
}

// matches is nil where nothing else was announced.
func matches(field, want, got string) *failure.Error {
	if want == "" || want == got {
		return nil
	}
	return failure.Precondition("IMAGE_DIGEST_MISMATCH", "%s is %s, not %s as announced", field, got, want).
		WithField("image."+field, "not the digest of the bytes that came")
}

func minimumDisk(entry, said *baremetalv1.Image) error {
	if entry.GetKind() != kindOS {
		entry.MinimumDiskBytes = 0
		return nil
	}
	switch n := said.GetMinimumDiskBytes(); {
	case n == 0:
		entry.MinimumDiskBytes = entry.GetSizeBytes() + stateRoom
	case n < entry.GetSizeBytes():
		return failure.Invalid("INVALID_FIELD", "minimum_disk_bytes is less than the image's %d bytes", entry.GetSizeBytes()).
			WithField("image.minimum_disk_bytes", "less than the image")
	}
	return nil
}

// unpacked reads a zstd stream to its end.
func (c *Catalogue) unpacked(ctx context.Context, file *blob.Writer) (raw, error) {
	d, err := zstream.NewReader(io.NewSectionReader(file, 0, file.Size()), zstd.WithDecoderConcurrency(0))
	if err != nil {
		return raw{}, unsupported("the file is no zstd stream: %v", err)
	}
	defer d.Close() //nolint:errcheck // it has none
	sum := sha256.New()
	head := &ends{}
	n, err := io.CopyBuffer(
		io.MultiWriter(sum, head),
		&limited{ctx: ctx, r: d, most: c.cfg.MaxRaw},
		make([]byte, copyBytes),
	)
	if err != nil {
		return raw{}, streamError(ctx, err)
	}
	arch, err := checkDisk(head, n)
	return raw{size: n, sum: hex.EncodeToString(sum.Sum(nil)), arch: arch}, err
}

func streamError(ctx context.Context, err error) error {
	var typed *failure.Error
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &typed):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return unavailable("the zstd stream ends early")
	case errors.Is(err, zstd.ErrCRCMismatch):
		return failure.Precondition("IMAGE_DIGEST_MISMATCH", "the zstd stream is damaged: its checksum is wrong")
	case errors.Is(err, zstream.ErrWindow):
		return unsupported("%v, which installers don't have; compress without --ultra and --long", err)
	}
	return unsupported("the file is no sound zstd stream: %v", err)
}

// limited ends with the context, and when more comes than any image has.
type limited struct {
	ctx        context.Context
	r          io.Reader
	seen, most int64
}

func (l *limited) Read(p []byte) (int, error) {
	if err := l.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := l.r.Read(p)
	if l.seen += int64(n); l.seen > l.most {
		return n, unsupported("the image is bigger than %d bytes", l.most)
	}
	return n, err
}

// ends keeps the first bytes and the last sector of the bytes that are written to it.
type ends struct {
	head, tail []byte
	size       int64
}

func (e *ends) Write(p []byte) (int, error) {
	e.head = append(e.head, p[:min(len(p), tableBytes-len(e.head))]...)
	e.tail = append(e.tail, p[max(0, len(p)-sector):]...)
	e.tail = e.tail[max(0, len(e.tail)-sector):]
	e.size += int64(len(p))
	return len(p), nil
}

func (e *ends) ReadAt(p []byte, off int64) (int, error) {
	b := []byte(nil)
	if at := off - (e.size - int64(len(e.tail))); off < int64(len(e.head)) {
		b = e.head[off:]
	} else if at >= 0 && at < int64(len(e.tail)) {
		b = e.tail[at:]
	}
	n := copy(p, b)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
