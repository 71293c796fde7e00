package script

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Store is where the entries are; the store of the catalogue is one.
type Store interface {
	AddScript(ctx context.Context, s *baremetalv1.Script, place func() error, actor string,
		now time.Time) (*baremetalv1.Script, error)
	RemoveScript(ctx context.Context, ref, actor string, now time.Time) (*baremetalv1.Script, error)
	blob.Entries
}

// Config is what the catalogue works with; all of it is required.
type Config struct {
	Blobs  blob.Store
	Store  Store
	Clock  clock.Clock
	Logger *slog.Logger
}

// Catalogue takes scripts in and throws them out. It is safe for concurrent use.
type Catalogue struct{ cfg Config }

// New makes a catalogue.
func New(c Config) *Catalogue { return &Catalogue{cfg: c} }

// Add adds a script with these bytes. The description must be valid; a digest in it must be that of the bytes.
func (c *Catalogue) Add(
	ctx context.Context, s *baremetalv1.Script, content []byte, actor string,
) (*baremetalv1.Script, error) {
	w, err := c.cfg.Blobs.Create()
	if err != nil {
		return nil, err
	}
	defer w.Release(c.cfg.Logger)
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if s.GetSha256() != "" && s.GetSha256() != w.SHA256() {
		return nil, failure.Invalid("SCRIPT_DIGEST_MISMATCH", "the bytes have the digest %s", w.SHA256()).
			WithField("script.sha256", "not the digest of content")
	}
	if err := w.Send(ctx); err != nil {
		return nil, err
	}
	entry := proto.CloneOf(s)
	entry.Sha256, entry.SizeBytes = w.SHA256(), w.Size()
	place := func() error { return w.Place(ctx) }
	added, err := c.cfg.Store.AddScript(ctx, entry, place, actor, c.cfg.Clock.Now())
	if err != nil {
		blob.Drop(ctx, c.cfg.Blobs, c.cfg.Store, entry.GetSha256(), c.cfg.Logger)
		return nil, err
	}
	c.cfg.Logger.InfoContext(ctx, "script added", "script_ref", added.GetScriptRef(), "sha256", added.GetSha256(),
		"size_bytes", added.GetSizeBytes())
	return added, nil
}

// Remove takes an entry out, and its blob when no other entry names it.
func (c *Catalogue) Remove(ctx context.Context, ref, actor string) (*baremetalv1.Script, error) {
	s, err := c.cfg.Store.RemoveScript(ctx, ref, actor, c.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	blob.Drop(ctx, c.cfg.Blobs, c.cfg.Store, s.GetSha256(), c.cfg.Logger)
	return s, nil
}
