package bucket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

var (
	beforePart     = failpoint.Register("bucket.before-part")
	beforeComplete = failpoint.Register("bucket.before-complete")
	afterComplete  = failpoint.Register("bucket.after-complete")
)

const (
	// leastPart is the size of a part, of which an upload may have 10,000. A file that is no larger is sent at once.
	leastPart = 8 << 20
	mostParts = 10_000
	mib       = 1 << 20
	// abortTime bounds the end of an upload, which goes on when its caller has gone.
	abortTime = 20 * time.Second
)

const contentType = "application/octet-stream"

// partSize is that of all parts but the last of a file.
func partSize(size int64) int64 {
	least := (size + mostParts - 1) / mostParts
	return max(leastPart, (least+mib-1)/mib*mib)
}

// Create implements blob.Store.
func (b *Bucket) Create() (*blob.Writer, error) { return b.Spool.Create(&upload{b: b}) }

// upload is one file on its way into the bucket.
type upload struct {
	b     *Bucket
	id    string
	key   string
	parts []minio.CompletePart
}

// Send implements blob.Destination: a large file goes in parts, which are invisible before Place.
func (u *upload) Send(ctx context.Context, w *blob.Writer) (err error) {
	u.key = u.b.name(w.SHA256())
	if w.Size() <= leastPart {
		return nil // Place sends it
	}
	u.id, err = u.b.core.NewMultipartUpload(ctx, u.b.cfg.Name, u.key, minio.PutObjectOptions{ContentType: contentType})
	if err != nil {
		return failed(ctx, "write to", w.SHA256(), err)
	}
	whole, size := sha256.New(), partSize(w.Size())
	for at := int64(0); at < w.Size(); at += size {
		if err := u.part(ctx, io.NewSectionReader(w, at, min(size, w.Size()-at)), whole); err != nil {
			return failed(ctx, "write to", w.SHA256(), err)
		}
	}
	if got := hex.EncodeToString(whole.Sum(nil)); got != w.SHA256() {
		return changed(w.SHA256(), got)
	}
	return nil
}

// changed is the error of a file whose bytes are others than those that were written.
func changed(want, got string) error {
	return fmt.Errorf("the file in images_dir has changed after it was written: its digest is %s, not %s", got, want)
}

// part sends one part, with its digest, which the service compares: DisableContentSha256 leaves out only the library's
// own digests of chunks, in whose place ours would not be sent.
func (u *upload) part(ctx context.Context, r *io.SectionReader, whole hash.Hash) error {
	if err := beforePart.HitCtx(ctx); err != nil {
		return err
	}
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(sum, whole), r); err != nil {
		return fmt.Errorf("read what comes in: %w", err)
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read what comes in: %w", err)
	}
	number := len(u.parts) + 1
	p, err := u.b.core.PutObjectPart(ctx, u.b.cfg.Name, u.key, u.id, number, r, r.Size(),
		minio.PutObjectPartOptions{Sha256Hex: hex.EncodeToString(sum.Sum(nil)), DisableContentSha256: true})
	if err != nil {
		return err
	}
	u.parts = append(u.parts, minio.CompletePart{PartNumber: number, ETag: p.ETag})
	return nil
}

// Place implements blob.Destination.
func (u *upload) Place(ctx context.Context, w *blob.Writer) error {
	if err := beforeComplete.HitCtx(ctx); err != nil {
		return err
	}
	var err error
	if u.id == "" {
		err = u.putAtOnce(ctx, w)
	} else {
		err = u.complete(ctx, w)
	}
	if err != nil {
		return failed(ctx, "write to", w.SHA256(), err)
	}
	u.id = ""
	return afterComplete.HitCtx(ctx)
}

// putAtOnce sends a small file with the digest that the service compares: the one that it is named by.
func (u *upload) putAtOnce(ctx context.Context, w *blob.Writer) error {
	content, err := io.ReadAll(io.NewSectionReader(w, 0, w.Size()))
	if err != nil {
		return fmt.Errorf("read what comes in: %w", err)
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != w.SHA256() {
		return changed(w.SHA256(), hex.EncodeToString(sum[:]))
	}
	_, err = u.b.core.PutObject(ctx, u.b.cfg.Name, u.key, bytes.NewReader(content), w.Size(), "", w.SHA256(),
		minio.PutObjectOptions{ContentType: contentType, DisableContentSha256: true})
	return err
}

// complete makes one object of the parts. Where an earlier try has done so and its answer was lost, the upload is gone
// and the object is there.
func (u *upload) complete(ctx context.Context, w *blob.Writer) error {
	_, err := u.b.core.CompleteMultipartUpload(ctx, u.b.cfg.Name, u.key, u.id, u.parts, minio.PutObjectOptions{})
	if err == nil || !isGone(err) {
		return err
	}
	size, statErr := u.b.size(ctx, w.SHA256())
	if statErr == nil && size == w.Size() {
		return nil
	}
	return err
}

// Settle implements blob.Destination: the service has answered, and keeps what it has.
func (u *upload) Settle() error { return nil }

// Abandon implements blob.Destination.
func (u *upload) Abandon() error {
	if u.id == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), abortTime)
	defer cancel()
	err := u.b.core.AbortMultipartUpload(ctx, u.b.cfg.Name, u.key, u.id)
	if err == nil || isGone(err) {
		return nil
	}
	return failed(ctx, "end an upload to", "", err)
}
