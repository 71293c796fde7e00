package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/catalog"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

// KindOS is an operating system to be written to a disk; the other kinds are files of installers.
const KindOS = "os"

// GetImage reads one entry of the catalogue; IMAGE_NOT_FOUND where there is none.
func (s *Store) GetImage(ctx context.Context, ref string) (*baremetalv1.Image, error) {
	row, err := s.db.Q.GetImage(ctx, ref)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, imageNotFound(ref)
	}
	if err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	return imageMessage(row), nil
}

func imageNotFound(ref string) error {
	return failure.NotFound("IMAGE_NOT_FOUND", "there is no image %q in the catalogue", ref).WithField("image_ref",
		"unknown")
}

func imageMessage(r dbsqlc.Image) *baremetalv1.Image {
	return &baremetalv1.Image{
		ImageRef: r.ImageRef, Kind: r.Kind, Arch: r.Arch, Url: r.Url, Format: r.Format, Sha256File: r.Sha256File,
		Sha256Raw: r.Sha256Raw, Sha256Source: r.Sha256Source, SizeBytes: r.SizeBytes, FileSizeBytes: r.FileSizeBytes,
		MinimumDiskBytes: r.MinimumDiskBytes, Firmware: r.Firmware, CreatedAt: convert.Timestamp(r.CreatedAt),
	}
}

// ImageFilter selects the part of the list of images.
type ImageFilter struct {
	AfterRef string
	Limit    int32
}

// ListImages reads images by name.
func (s *Store) ListImages(ctx context.Context, f ImageFilter) ([]*baremetalv1.Image, error) {
	rows, err := s.db.Lists(ctx).ListImages(ctx, dbsqlc.ListImagesParams{AfterRef: f.AfterRef, PageSize: f.Limit})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	out := make([]*baremetalv1.Image, 0, len(rows))
	for _, r := range rows {
		out = append(out, imageMessage(r))
	}
	return out, nil
}

// AddImage adds a complete description. place stores the file under its digest; it runs while that file cannot be
// removed, and may run more than once. The same image again is returned as it was added first.
func (s *Store) AddImage(
	ctx context.Context, im *baremetalv1.Image, place func() error, actor string, now time.Time,
) (*baremetalv1.Image, error) {
	var row dbsqlc.Image
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.LockBlob(ctx, im.GetSha256File()); err != nil {
			return fmt.Errorf("lock blob: %w", err)
		}
		n, err := q.InsertImage(ctx, insertImage(im, now))
		if err != nil {
			return fmt.Errorf("insert image: %w", err)
		}
		row, err = q.LockImage(ctx, im.GetImageRef())
		if errors.Is(err, pgx.ErrNoRows) {
			return pgtx.ErrLostVersion // removed in between: again
		}
		if err != nil {
			return fmt.Errorf("read image: %w", err)
		}
		if n == 0 {
			if err := sameImage(imageMessage(row), im); err != nil {
				return err
			}
			return place() // a file that was lost comes back
		}
		if err := touchForInstaller(ctx, q, row); err != nil {
			return err
		}
		err = history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "ADD_IMAGE", Target: row.ImageRef,
			Data: map[string]string{"kind": row.Kind, "sha256_file": row.Sha256File},
		}, now)
		if err != nil {
			return err
		}
		return place()
	})
	if err != nil {
		return nil, fmt.Errorf("add image: %w", err)
	}
	return imageMessage(row), nil
}

func insertImage(im *baremetalv1.Image, now time.Time) dbsqlc.InsertImageParams {
	return dbsqlc.InsertImageParams{
		ImageRef: im.GetImageRef(), Kind: im.GetKind(), Arch: im.GetArch(), Url: im.GetUrl(), Format: im.GetFormat(),
		Sha256File: im.GetSha256File(), Sha256Raw: im.GetSha256Raw(), Sha256Source: im.GetSha256Source(),
		SizeBytes: im.GetSizeBytes(), FileSizeBytes: im.GetFileSizeBytes(), MinimumDiskBytes: im.GetMinimumDiskBytes(),
		Firmware: pgtx.NonNil(im.GetFirmware()), Now: now,
	}
}

// sameImage refuses another image under the name of one that is there. Where it came from makes no difference.
func sameImage(have, want *baremetalv1.Image) error {
	var diff []string
	for field, same := range map[string]bool{
		"kind": have.GetKind() == want.GetKind(), "arch": have.GetArch() == want.GetArch(),
		"sha256_file":        have.GetSha256File() == want.GetSha256File(),
		"minimum_disk_bytes": have.GetMinimumDiskBytes() == want.GetMinimumDiskBytes(),
		"firmware":           slices.Equal(have.GetFirmware(), want.GetFirmware()),
	} {
		if !same {
			diff = append(diff, field)
		}
	}
	if len(diff) == 0 {
		return nil
	}
	slices.Sort(diff)
	e := failure.AlreadyExists("IMAGE_EXISTS", "there is another image %q: it differs in %s", have.GetImageRef(),
		strings.Join(diff, ", "))
	for _, f := range diff {
		e = e.WithField("image."+f, "differs from the image that is there")
	}
	return e
}

// touchForInstaller notifies every site of a change of the installer's files.
func touchForInstaller(ctx context.Context, q *dbsqlc.Queries, r dbsqlc.Image) error {
	if r.Kind == KindOS {
		return nil
	}
	if err := q.TouchAllSites(ctx); err != nil {
		return fmt.Errorf("tell the sites: %w", err)
	}
	return nil
}

// RemoveImage takes an entry out of the catalogue, unless something needs it. Its blob is for DropBlob.
func (s *Store) RemoveImage(ctx context.Context, ref, actor string, now time.Time) (*baremetalv1.Image, error) {
	var row dbsqlc.Image
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if row, err = q.LockImage(ctx, ref); errors.Is(err, pgx.ErrNoRows) {
			return imageNotFound(ref)
		}
		if err != nil {
			return fmt.Errorf("lock image: %w", err)
		}
		use, err := s.useOfImage(ctx, q, row)
		if err != nil {
			return err
		}
		if err := catalog.MayRemoveImage(ref, use); err != nil {
			return err
		}
		if err := q.DeleteImage(ctx, ref); err != nil {
			return fmt.Errorf("delete image: %w", err)
		}
		if err := touchForInstaller(ctx, q, row); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "REMOVE_IMAGE", Target: ref,
			Data: map[string]string{"kind": row.Kind, "sha256_file": row.Sha256File},
		}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("remove image: %w", err)
	}
	return imageMessage(row), nil
}

// useOfImage reads what needs an image.
func (s *Store) useOfImage(ctx context.Context, q *dbsqlc.Queries, r dbsqlc.Image) (u catalog.ImageUse, err error) {
	if r.Kind != KindOS {
		return useOfInstaller(ctx, q, r)
	}
	u.System, u.ServerDefault = true, r.ImageRef == s.DefaultImage
	if u.Machine, err = q.MachineWithDefaultImage(ctx, r.ImageRef); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return u, fmt.Errorf("look for machines of the image: %w", err)
	}
	steps, err := q.RepavesUnderWay(ctx)
	if err != nil {
		return u, fmt.Errorf("look for operations of the image: %w", err)
	}
	for _, step := range steps {
		var m baremetalv1.Step
		if err := proto.Unmarshal(step.Spec, &m); err != nil {
			return u, fmt.Errorf("read step of operation %s: %w", step.OperationID, err)
		}
		if m.GetRepave().GetImage() == r.ImageRef {
			u.Operation = step.OperationID
			break
		}
	}
	return u, nil
}

// useOfInstaller reads whether a file is served while machines boot the installer.
func useOfInstaller(ctx context.Context, q *dbsqlc.Queries, r dbsqlc.Image) (u catalog.ImageUse, err error) {
	all, err := q.InstallerImages(ctx)
	if err != nil {
		return u, fmt.Errorf("look for installers: %w", err)
	}
	u.Served = slices.ContainsFunc(NewestInstallers(all, ""), func(f *fleetv1.InstallerFiles) bool {
		return f.GetArch() == r.Arch && slices.Contains([]string{f.GetKernelSha256(), f.GetInitrdSha256(), f.GetUkiSha256()},
			r.Sha256File)
	})
	u.Boots, err = q.AnyMachineBootsInstaller(ctx)
	return u, pgtx.Wrap(err, "look for machines in the installer")
}

// DropBlob runs drop if no entry names the blob, while none can be added that does.
func (s *Store) DropBlob(ctx context.Context, sha256 string, drop func() error) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.LockBlob(ctx, sha256); err != nil {
			return fmt.Errorf("lock blob: %w", err)
		}
		n, err := q.CountImagesOfBlob(ctx, sha256)
		if err != nil || n > 0 {
			return err
		}
		return drop()
	})
	if err != nil {
		return fmt.Errorf("drop blob: %w", err)
	}
	return nil
}

// UnnamedBlobs returns those of the digests that no entry names.
func (s *Store) UnnamedBlobs(ctx context.Context, sums []string) ([]string, error) {
	named, err := s.db.Q.BlobsNamed(ctx, pgtx.NonNil(sums))
	if err != nil {
		return nil, fmt.Errorf("look up blobs: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(sums), func(sum string) bool { return slices.Contains(named, sum) }), nil
}
