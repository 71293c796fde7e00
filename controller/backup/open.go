package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/ingot-metal/ingot/internal/zstream"
)

// Archive is a backup whose members were all held against their digests.
type Archive struct {
	Manifest
	file  io.ReadSeeker
	small map[string][]byte
}

// Open verifies a whole backup. It writes nothing.
func Open(ctx context.Context, file io.ReadSeeker) (*Archive, error) {
	a := &Archive{file: file, small: map[string][]byte{}}
	err := a.walk(ctx, func(m Member, in io.Reader) error {
		if !m.small() {
			_, err := io.Copy(io.Discard, in)
			return err
		}
		raw, err := io.ReadAll(in)
		a.small[m.Name] = raw
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("nothing was restored: the backup cannot be trusted: %w", err)
	}
	return a, nil
}

// ConfigFile is the configuration as it was.
func (a *Archive) ConfigFile() []byte { return a.small[configName] }

// walk reads the file from its beginning, and calls fn with each member. Every difference from the manifest is an
// error.
func (a *Archive) walk(ctx context.Context, fn func(Member, io.Reader) error) error {
	if _, err := a.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}
	z, err := zstream.NewReader(a.file, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("read the backup: %w", err)
	}
	defer z.Close() //nolint:errcheck // it has none
	t := tar.NewReader(z)
	h, err := t.Next()
	if err != nil {
		return ended(err)
	}
	if h.Typeflag != tar.TypeReg || h.Name != manifestName || h.Size > maxManifest {
		return fmt.Errorf("it does not begin with its manifest but with %.80q", h.Name)
	}
	raw, err := io.ReadAll(t)
	if err != nil {
		return ended(err)
	}
	if a.Manifest, err = parseManifest(raw); err != nil {
		return err
	}
	for _, m := range a.Members {
		if err := errors.Join(ctx.Err(), next(t, m, fn)); err != nil {
			return err
		}
	}
	if h, err := t.Next(); err == nil {
		return fmt.Errorf("%.80q is not in its manifest", h.Name)
	} else if !errors.Is(err, io.EOF) {
		return ended(err)
	}
	// The frame's checksum comes after its last byte.
	if n, err := io.Copy(io.Discard, io.LimitReader(z, 1)); err != nil || n > 0 {
		return errors.Join(errors.New("it goes on after its end"), err)
	}
	return nil
}

// next reads one member.
func next(t *tar.Reader, m Member, fn func(Member, io.Reader) error) error {
	h, err := t.Next()
	if err != nil {
		return ended(err)
	}
	if h.Typeflag != tar.TypeReg || h.Name != m.Name || h.Size != m.Size {
		return fmt.Errorf("%.80q of type %q and %d bytes stands where its manifest has %s of %d bytes", h.Name, h.Typeflag,
			h.Size, m.Name, m.Size)
	}
	c := &counter{to: io.Discard, sum: sha256.New()}
	in := io.TeeReader(t, c)
	if err := fn(m, in); err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		return ended(err)
	}
	if c.size != m.Size || c.hex() != m.SHA256 {
		return fmt.Errorf("%s is damaged: its bytes are not those of its digest", m.Name)
	}
	return nil
}

// ended names the end of a file that was cut short.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it ends too early: %w", io.ErrUnexpectedEOF)
	}
	return err
}
