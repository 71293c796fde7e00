package image

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/catalog/oci"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

// beforeEntry is passed when the file is whole and durable, and neither named nor in the catalogue.
var beforeEntry = failpoint.Register("image.before-entry")

// Store is where the entries are; the store of the catalogue is one.
type Store interface {
	GetImage(ctx context.Context, ref string) (*baremetalv1.Image, error)
	AddImage(ctx context.Context, im *baremetalv1.Image, place func() error, actor string,
		now time.Time) (*baremetalv1.Image, error)
	RemoveImage(ctx context.Context, ref, actor string, now time.Time) (*baremetalv1.Image, error)
	blob.Entries
	UnnamedBlobs(ctx context.Context, sums []string) ([]string, error)
}

// Config is what the catalogue works with. Blobs and Store are required.
type Config struct {
	Blobs blob.Store
	Store Store
	// Client fetches images; nil means one of our own.
	Client *http.Client
	Clock  clock.Clock
	Logger *slog.Logger
	// AtOnce is how many files are taken in at the same time, others wait; 0 means 2.
	AtOnce int
	// Addresses says which addresses Client may fetch from; the zero Policy with DenyPrivate is the default: public ones.
	Addresses webhook.Policy
	// Registries are asked for what URLs of the scheme oci name, by the connections of Client.
	Registries oci.Client
	// MaxBytes bounds one file; 0 means 64 GiB.
	MaxBytes int64
	// MaxRaw bounds what a file may hold when it is unpacked; 0 means 4 TiB.
	MaxRaw int64
	// Stall is how long a source may send nothing; 0 means a minute.
	Stall time.Duration
}

// Catalogue takes images in and throws them out. It is safe for concurrent use.
type Catalogue struct {
	cfg   Config
	slots chan struct{}
}

// New makes a catalogue.
func New(c Config) *Catalogue {
	if c.Client == nil {
		c.Addresses.DenyPrivate = true
		c.Client = newClient(c.Addresses)
	}
	c.Registries.Transport = c.Client.Transport
	if c.Clock == nil {
		c.Clock = clock.Real()
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.AtOnce == 0 {
		c.AtOnce = 2
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 64 << 30
	}
	if c.MaxRaw == 0 {
		c.MaxRaw = maxRaw
	}
	if c.Stall == 0 {
		c.Stall = time.Minute
	}
	return &Catalogue{cfg: c, slots: make(chan struct{}, c.AtOnce)}
}

// Add fetches an image from its URL and adds it. The description must be valid. Where its digests are those of the
// entry that is there, nothing is fetched.
func (c *Catalogue) Add(ctx context.Context, im *baremetalv1.Image, actor string) (*baremetalv1.Image, error) {
	if err := c.checkSource(im); err != nil {
		return nil, err
	}
	known, err := c.known(ctx, im)
	if known != nil || err != nil {
		return known, err
	}
	release, err := c.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f, err := c.open(ctx, cancel, im)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // everything was read, or nothing more is wanted
	im = proto.CloneOf(im)
	im.Url = f.url
	return c.take(ctx, im, source{f, f.size, f.sum}, actor)
}

// Upload adds an image whose bytes the caller has. It reads none of them where Add would fetch nothing.
func (c *Catalogue) Upload(
	ctx context.Context, im *baremetalv1.Image, r io.Reader, actor string,
) (*baremetalv1.Image, error) {
	known, err := c.known(ctx, im)
	if known != nil || err != nil {
		return known, err
	}
	release, err := c.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	return c.take(ctx, im, source{r: r, size: im.GetFileSizeBytes()}, actor)
}

func (c *Catalogue) slot(ctx context.Context) (release func(), err error) {
	select {
	case c.slots <- struct{}{}:
		return func() { <-c.slots }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// known returns the entry that is there, if the digests that the description gives say that it is the same one.
func (c *Catalogue) known(ctx context.Context, im *baremetalv1.Image) (*baremetalv1.Image, error) {
	have, err := c.cfg.Store.GetImage(ctx, im.GetImageRef())
	if failure.HasReason(err, "IMAGE_NOT_FOUND") {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if there, err := c.cfg.Blobs.Has(ctx, have.GetSha256File()); err != nil || !there {
		return nil, err // a file that was lost is fetched again
	}
	switch same, said := sameDigests(have, im); {
	case !said:
		return nil, nil // only the bytes can tell
	case !same:
		return nil, failure.AlreadyExists("IMAGE_EXISTS", "there is another image %q, with other digests", im.GetImageRef()).
			WithField("image.image_ref", "taken by another image")
	}
	want := proto.CloneOf(have)
	adopt(want, im)
	if !proto.Equal(want, have) {
		return nil,
			failure.AlreadyExists("IMAGE_EXISTS", "there is another image %q: the bytes are the same, the description differs",
				im.GetImageRef()).
				WithField("image.image_ref", "taken by another image")
	}
	return have, nil
}

// sameDigests compares the digests that are given; said is false where none is.
func sameDigests(have, given *baremetalv1.Image) (same, said bool) {
	source := have.GetSha256Source()
	if source == "" {
		source = have.GetSha256File()
	}
	same = true
	for _, d := range [][2]string{
		{given.GetSha256File(), have.GetSha256File()}, {given.GetSha256Raw(), have.GetSha256Raw()},
		{given.GetSha256Source(), source},
	} {
		said = said || d[0] != ""
		same = same && (d[0] == "" || d[0] == d[1])
	}
	return same, said
}

// adopt lays what a description says about the use of an image over an entry.
func adopt(entry, said *baremetalv1.Image) {
	entry.Kind, entry.Arch = said.GetKind(), cmp.Or(said.GetArch(), entry.GetArch())
	if said.GetMinimumDiskBytes() != 0 {
		entry.MinimumDiskBytes = said.GetMinimumDiskBytes()
	}
	if len(said.GetFirmware()) > 0 {
		entry.Firmware = said.GetFirmware()
	}
}

// take brings the bytes in, looks at them, and adds the entry.
func (c *Catalogue) take(
	ctx context.Context, im *baremetalv1.Image, src source, actor string,
) (*baremetalv1.Image, error) {
	began := c.cfg.Clock.Now()
	got, err := c.receive(ctx, src)
	if err != nil {
		return nil, err
	}
	defer got.Release(c.cfg.Logger)
	entry, file, err := c.inspect(ctx, im, got)
	if err != nil {
		return nil, err
	}
	if file != got {
		defer file.Release(c.cfg.Logger)
	}
	if err := file.Send(ctx); err != nil {
		return nil, err
	}
	if err := beforeEntry.HitCtx(ctx); err != nil {
		return nil, err
	}
	place := func() error { return file.Place(ctx) }
	added, err := c.cfg.Store.AddImage(ctx, entry, place, actor, c.cfg.Clock.Now())
	if err != nil {
		blob.Drop(ctx, c.cfg.Blobs, c.cfg.Store, entry.GetSha256File(), c.cfg.Logger)
		return nil, err
	}
	c.cfg.Logger.InfoContext(ctx, "image added", "image_ref", added.GetImageRef(), "kind", added.GetKind(), "format",
		added.GetFormat(),
		"sha256_file", added.GetSha256File(), "file_size_bytes", added.GetFileSizeBytes(), "size_bytes", added.GetSizeBytes(),
		"took", c.cfg.Clock.Now().Sub(began).Round(time.Millisecond).String())
	return added, nil
}

// Remove takes an entry out, and its blob when no other entry names it.
func (c *Catalogue) Remove(ctx context.Context, ref, actor string) (*baremetalv1.Image, error) {
	im, err := c.cfg.Store.RemoveImage(ctx, ref, actor, c.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	blob.Drop(ctx, c.cfg.Blobs, c.cfg.Store, im.GetSha256File(), c.cfg.Logger)
	return im, nil
}

// Sweep removes the blobs that no entry names, and what is half written: what a crash has left. Call it at start. Where
// none of the blobs is named, the store may belong to another database than this one, and is left alone.
func (c *Catalogue) Sweep(ctx context.Context) error {
	if err := c.cfg.Blobs.Tidy(ctx); err != nil {
		return err
	}
	list, err := c.cfg.Blobs.List(ctx)
	if err != nil {
		return err
	}
	all := make([]string, 0, len(list))
	for _, b := range list {
		all = append(all, b.SHA256)
	}
	unnamed, err := c.cfg.Store.UnnamedBlobs(ctx, all)
	if err != nil {
		return fmt.Errorf("sweep blobs: %w", err)
	}
	if len(unnamed) == len(all) {
		if len(all) > 0 {
			c.cfg.Logger.WarnContext(ctx, "the catalogue knows none of the files in the image store; leaving them", "count",
				len(all))
		}
		return nil
	}
	for _, sum := range unnamed {
		blob.Drop(ctx, c.cfg.Blobs, c.cfg.Store, sum, c.cfg.Logger)
	}
	return nil
}
