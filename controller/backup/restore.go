package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/catalog/imagestore"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Target is the host to restore on.
type Target struct {
	// Config says where everything goes.
	Config config.Config
	// ConfigPath is where the configuration belongs. One that is there stays, and the backup's is put beside it.
	ConfigPath string
	// AsOwner runs a function with the rights of the data directory's owner.
	AsOwner func(func() error) error
	// Share lets the controller's user read a file outside of its directory.
	Share func(path string) error
	Now   time.Time
}

// restore is one run of Restore.
type restore struct {
	*Archive
	Target
	made []string
	// placed are the blobs that were added to images, which is nil before it is opened.
	images blob.Store
	placed []string
}

// Restore makes a controller of the backup that may be started: its fleet is frozen and older cursors are refused, as
// after any restore. It writes nothing where something is in the way.
func (a *Archive) Restore(ctx context.Context, t Target) (err error) {
	r := &restore{Archive: a, Target: t}
	if err := r.look(ctx); err != nil {
		return fmt.Errorf("nothing was restored: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.undo(ctx))
		}
	}()
	// The first, since it may take some of them to reach the bucket of images.
	for _, p := range optional(t.Config) {
		if raw, ok := a.small[p.name]; ok {
			if err := r.outside(p.path, raw, true); err != nil {
				return err
			}
		}
	}
	if err := t.AsOwner(func() error { return r.owned(ctx) }); err != nil {
		return err
	}
	if !r.keysInside() {
		if err := r.outside(t.Config.SecretKeyPath(), a.small[secretsName], false); err != nil {
			return err
		}
	}
	if err := r.configuration(); err != nil {
		return err
	}
	// The last, since no controller starts without it.
	return r.outside(t.Config.TokensFile, a.small[tokensName], false)
}

// keysInside reports whether the key of stored secrets lies in the data directory.
func (r *restore) keysInside() bool {
	return strings.HasPrefix(r.Config.SecretKeyPath(), filepath.Clean(r.Config.DataDir)+"/")
}

// look refuses a host that has something already.
func (r *restore) look(ctx context.Context) error {
	var all error
	inTheWay := func(what, remedy string) { all = errors.Join(all, fmt.Errorf("%s; %s", what, remedy)) }
	for _, path := range []string{r.Config.TokensFile, r.Config.SecretKeyPath()} {
		if _, err := os.Lstat(path); err == nil {
			inTheWay(path+" is there", "move it away")
		} else if !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	names, err := entries(r.Config.DataDir)
	if err != nil {
		return errors.Join(all, err)
	}
	if len(names) > 0 {
		inTheWay(
			fmt.Sprintf("the data directory %s has %s", r.Config.DataDir, strings.Join(names[:min(len(names), 5)], ", ")),
			"name an empty one, or stop its controller and move it away",
		)
	}
	return errors.Join(all, r.AsOwner(func() error { return r.lookAtDatabase(ctx) }))
}

// entries lists a directory; one that is missing is empty.
func entries(dir string) (names []string, err error) {
	list, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at the data directory: %w", err)
	}
	for _, e := range list {
		if e.Name() != "lost+found" {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

func (r *restore) lookAtDatabase(ctx context.Context) error {
	s, err := store.New(ctx, store.Config{URL: r.Config.Database.URL, PoolSize: 2})
	if err != nil {
		return err
	}
	defer s.Close()
	settings, err := s.Schema.Settings(ctx)
	if err != nil {
		return err
	}
	if major := settings.Version / 10000; major < r.Server {
		return fmt.Errorf("the backup is of PostgreSQL %d, and database.url leads to version %d: use %d or newer", r.Server,
			major, r.Server)
	}
	tables, err := s.Schema.Relations(ctx)
	if err != nil {
		return err
	}
	if len(tables) > 0 {
		return fmt.Errorf("the database has tables (%s); name an empty one in database.url, or drop and create this one",
			strings.Join(tables, ", "))
	}
	return nil
}

// owned writes what belongs to the controller's user: keys, images, database.
func (r *restore) owned(ctx context.Context) error {
	if err := r.makeDir(r.Config.DataDir); err != nil {
		return err
	}
	for _, m := range r.Members {
		rel, ok := strings.CutPrefix(m.Name, caPrefix)
		if !ok {
			continue
		}
		if err := r.write(filepath.Join(r.Config.DataDir, "ca", filepath.FromSlash(rel)), r.small[m.Name]); err != nil {
			return err
		}
	}
	if r.keysInside() {
		if err := r.write(r.Config.SecretKeyPath(), r.small[secretsName]); err != nil {
			return err
		}
	}
	return r.large(ctx)
}

// write makes a file that was not there.
func (r *restore) write(path string, raw []byte) error {
	if err := r.makeDir(filepath.Dir(path)); err != nil {
		return err
	}
	r.made = append(r.made, path)
	return pki.WriteFile(path, raw, 0o600)
}

// makeDir makes a directory and those above it, and notes which were missing.
func (r *restore) makeDir(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	if err := r.makeDir(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	r.made = append(r.made, dir)
	return nil
}

// large reads the file once more for what is not held in memory.
func (r *restore) large(ctx context.Context) error {
	if err := r.makeDir(r.Config.ImagesPath()); err != nil {
		return err
	}
	r.made = append(r.made, filepath.Join(r.Config.ImagesPath(), "incoming"))
	var err error
	if r.images, err = imagestore.Open(&r.Config, slog.New(slog.DiscardHandler)); err != nil {
		return err
	}
	loaded := false
	err = r.walk(ctx, func(m Member, in io.Reader) error {
		switch {
		case m.Name == dumpName:
			loaded = true
			return load(ctx, r.Config.Database.URL, r.Dump, in)
		case strings.HasPrefix(m.Name, imagePrefix):
			return r.placeImage(ctx, m, in)
		}
		return nil
	})
	if err == nil {
		err = r.afterRestore(ctx)
	}
	if err != nil && loaded {
		err = fmt.Errorf("%w; drop and create the database before the next attempt", err)
	}
	return err
}

func (r *restore) afterRestore(ctx context.Context) error {
	s, err := store.New(ctx, store.Config{URL: r.Config.Database.URL, PoolSize: 2})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Schema.MigrateUp(ctx); err != nil {
		return err
	}
	if err := s.Catalog.SeedPlans(ctx, r.Now); err != nil {
		return err
	}
	return s.Incarnations.Restored(ctx, r.Now)
}

func (r *restore) placeImage(ctx context.Context, m Member, in io.Reader) (err error) {
	if there, err := r.images.Has(ctx, m.SHA256); err != nil || there {
		return err
	}
	w, err := r.images.Create()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	if _, err := io.Copy(w, in); err != nil {
		return err
	}
	if w.SHA256() != m.SHA256 {
		return errors.New("it has changed since it was verified")
	}
	if err := w.Send(ctx); err != nil {
		return err
	}
	r.placed = append(r.placed, m.SHA256)
	return w.Place(ctx)
}

// outside writes a file that the controller's user only reads. One that is there stays where it may.
func (r *restore) outside(path string, raw []byte, mayStay bool) error {
	if _, err := os.Lstat(path); err == nil && mayStay {
		return nil
	}
	if err := r.write(path, raw); err != nil {
		return err
	}
	return r.Share(path)
}

// BesideConfig is where the backup's configuration is put on a host that has one.
func BesideConfig(path string) string { return path + ".from-backup" }

func (r *restore) configuration() error {
	have, err := os.ReadFile(r.ConfigPath)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r.outside(r.ConfigPath, r.ConfigFile(), false)
	case err != nil:
		return fmt.Errorf("read configuration: %w", err)
	case string(have) == string(r.ConfigFile()):
		return nil
	}
	return r.outside(BesideConfig(r.ConfigPath), r.ConfigFile(), false)
}

// undo removes what was written, the last first.
func (r *restore) undo(ctx context.Context) (err error) {
	ctx = context.WithoutCancel(ctx)
	for _, sum := range r.placed {
		if removeErr := r.images.Remove(ctx, sum); removeErr != nil {
			err = errors.Join(err, fmt.Errorf("left behind: %w", removeErr))
		}
	}
	for i := len(r.made) - 1; i >= 0; i-- {
		if removeErr := os.Remove(r.made[i]); removeErr != nil && !errors.Is(removeErr, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("left behind: %w", removeErr))
		}
	}
	return err
}
