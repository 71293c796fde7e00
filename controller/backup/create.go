package backup

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/catalog/imagestore"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/store"
)

// alwaysIn is the size up to which files of the image store are in every backup: scripts are no larger.
const alwaysIn = 1 << 20

// Options say what to write.
type Options struct {
	Config config.Config
	// ConfigFile is the text of the configuration.
	ConfigFile []byte
	// Images takes the image store along.
	Images bool
	// Version is the program's.
	Version string
	Now     time.Time
}

// source is a member and what gives its bytes.
type source struct {
	Member
	open func() (io.ReadCloser, error)
}

// Create writes a backup. The controller may run. scratch is an empty file that the dump is kept in meanwhile.
func Create(ctx context.Context, o Options, scratch *os.File, out io.Writer) (Manifest, error) {
	m := Manifest{Format: format, Version: o.Version, Made: o.Now.UTC().Truncate(time.Second)}
	sources, err := o.files()
	if err != nil {
		return m, err
	}
	database, err := o.database(ctx, &m, scratch)
	if err != nil {
		return m, err
	}
	images, err := o.images(ctx, &m)
	if err != nil {
		return m, err
	}
	sources = append(append(sources, database), images...)
	for _, s := range sources {
		if err := s.check(); err != nil {
			return m, err
		}
		m.Members = append(m.Members, s.Member)
	}
	return m, pack(ctx, m, sources, out)
}

// files reads the small members.
func (o Options) files() (out []source, err error) {
	add := func(name, path string) {
		raw, readErr := os.ReadFile(path)
		if readErr != nil {
			err = errors.Join(err, fmt.Errorf("read what belongs into the backup: %w", readErr))
			return
		}
		out = append(out, inMemory(name, raw))
	}
	out = append(out, inMemory(configName, o.ConfigFile))
	add(tokensName, o.Config.TokensFile)
	add(secretsName, o.Config.SecretKeyPath())
	for _, f := range optional(o.Config) {
		add(f.name, f.path)
	}
	dir := filepath.Join(o.Config.DataDir, "ca")
	if _, _, err := ca.Check(dir); err != nil {
		return nil, fmt.Errorf("there is no whole CA; a controller makes it at its first start: %w", err)
	}
	walkErr := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.IsDir() {
			rel, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			add(caPrefix+filepath.ToSlash(rel), path)
		}
		return nil
	})
	return out, errors.Join(err, walkErr)
}

// place is a member and the file of the host that it is.
type place struct{ name, path string }

// optional are the files that the configuration may name.
func optional(c config.Config) (out []place) {
	for _, p := range []place{
		{tlsCertName, c.TLS.CertFile}, {tlsKeyName, c.TLS.KeyFile}, {tpmRootsName, c.TPMRootsFile},
		{bucketKeyName, c.Images.Bucket.CredentialsFile}, {bucketCAName, c.Images.Bucket.CAFile},
	} {
		if p.path != "" {
			out = append(out, p)
		}
	}
	return out
}

func inMemory(name string, raw []byte) source {
	sum := sha256.Sum256(raw)
	return source{Member{name, int64(len(raw)), hex.EncodeToString(sum[:])}, func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(raw)), nil
	}}
}

// database dumps into the scratch file.
func (o Options) database(ctx context.Context, m *Manifest, scratch *os.File) (source, error) {
	s, err := store.New(ctx, store.Config{URL: o.Config.Database.URL, PoolSize: 2})
	if err != nil {
		return source{}, err
	}
	defer s.Close()
	settings, err := s.Schema.Settings(ctx)
	if err != nil {
		return source{}, err
	}
	if m.Schema, err = s.Schema.SchemaVersion(ctx); err != nil {
		return source{}, err
	}
	if m.Schema == 0 {
		return source{}, errors.New("the database is empty: start the controller first")
	}
	m.Server = settings.Version / 10000
	w := &counter{to: scratch, sum: sha256.New()}
	if m.Dump, err = dump(ctx, o.Config.Database.URL, m.Server, w); err != nil {
		return source{}, err
	}
	// A controller of a newer version may have migrated meanwhile.
	if now, err := s.Schema.SchemaVersion(ctx); err != nil || now != m.Schema {
		return source{}, errors.Join(errors.New("the schema was migrated meanwhile: do it again"), err)
	}
	return source{Member{dumpName, w.size, w.hex()}, func() (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(scratch, 0, w.size)), nil
	}}, nil
}

// images lists the image store; the manifest gets those that are left out.
func (o Options) images(ctx context.Context, m *Manifest) (out []source, err error) {
	store, err := imagestore.Look(&o.Config)
	if err != nil {
		return nil, fmt.Errorf("open the image store: %w", err)
	}
	list, err := store.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the image store: %w", err)
	}
	for _, b := range list {
		member := Member{imagePrefix + b.SHA256, b.Size, b.SHA256}
		if !o.Images && member.Size > alwaysIn {
			m.LeftOut = append(m.LeftOut, member)
			continue
		}
		out = append(out, source{member, func() (io.ReadCloser, error) {
			r, _, err := store.Open(ctx, b.SHA256, 0)
			return r, err
		}})
	}
	return out, nil
}

// pack writes the manifest and the members, and holds each against the manifest once more.
func pack(ctx context.Context, m Manifest, sources []source, out io.Writer) error {
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return fmt.Errorf("write the manifest: %w", err)
	}
	z, err := zstd.NewWriter(out, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return fmt.Errorf("compress: %w", err)
	}
	w := tar.NewWriter(z)
	err = packOne(ctx, w, m.Made, inMemory(manifestName, raw))
	for i := 0; err == nil && i < len(sources); i++ {
		err = packOne(ctx, w, m.Made, sources[i])
	}
	if err != nil {
		return err
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		return fmt.Errorf("write the backup: %w", err)
	}
	return nil
}

func packOne(ctx context.Context, w *tar.Writer, at time.Time, s source) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	in, err := s.open()
	if err != nil {
		return fmt.Errorf("read %s: %w", s.Name, err)
	}
	defer in.Close() //nolint:errcheck // nothing was written
	err = w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: s.Name, Size: s.Size, Mode: 0o600, ModTime: at})
	if err != nil {
		return fmt.Errorf("write %s: %w", s.Name, err)
	}
	c := &counter{to: w, sum: sha256.New()}
	if _, err := io.Copy(c, in); err != nil {
		return fmt.Errorf("write %s: %w", s.Name, err)
	}
	if c.size != s.Size || c.hex() != s.SHA256 {
		return fmt.Errorf("%s is damaged on this host: its bytes are not those of its digest", s.Name)
	}
	return nil
}

// counter passes bytes on, and knows how many there were and their digest.
type counter struct {
	to   io.Writer
	sum  hash.Hash
	size int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.sum.Write(p[:n]) // never fails
	c.size += int64(n)
	return n, err
}

func (c *counter) hex() string { return hex.EncodeToString(c.sum.Sum(nil)) }
