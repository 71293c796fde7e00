package backup_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/backup"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/store"
	_ "github.com/ingot-metal/ingot/controller/store/storetest" // registers the migrations
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// host is a configuration with everything of its own below dir.
func host(dir, url string) config.Config {
	c := *config.Default()
	c.DataDir, c.TokensFile, c.Database.URL = filepath.Join(dir, "data"), filepath.Join(dir, "tokens"), url
	return c
}

// made is a backup of a controller that has a CA, a key, a token and a small file in its image store.
func made(t *testing.T, images bool) (raw []byte, c config.Config) {
	t.Helper()
	c = ready(t)
	return saved(t, c, images), c
}

// ready is the configuration of a controller that has all that a backup holds.
func ready(t *testing.T) config.Config {
	t.Helper()
	c := host(t.TempDir(), testkit.Database(t))
	if err := os.MkdirAll(c.ImagesPath(), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := ca.New(ca.Config{Dir: filepath.Join(c.DataDir, "ca"), Clock: clock.Real()}); err != nil {
		t.Fatal(err)
	}
	if _, err := secret.OpenFile(c.SecretKeyPath(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := auth.AddToken(c.TokensFile, "root", access.ScopeAdmin); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(c.ImagesPath(), smallDigest), []byte("small\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return c
}

// saved makes a backup.
func saved(t *testing.T, c config.Config, images bool) []byte {
	t.Helper()
	scratch, err := os.CreateTemp(filepath.Dir(c.DataDir), "scratch")
	if err != nil {
		t.Fatal(err)
	}
	defer scratch.Close()
	var out bytes.Buffer
	o := backup.Options{Config: c, ConfigFile: []byte("# text\n"), Images: images, Version: "test", Now: time.Now()}
	if _, err := backup.Create(t.Context(), o, scratch, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// smallDigest is the digest of "small\n".
const smallDigest = "4c47b3e816fbe7d40cef9f665ba8f0be1ae68b5e8e7ed70f5b6bab7f70528e8f"

func open(t *testing.T, raw []byte) (*backup.Archive, error) {
	t.Helper()
	return backup.Open(t.Context(), bytes.NewReader(raw))
}

func target(c config.Config, dir string) backup.Target {
	return backup.Target{Config: c, ConfigPath: filepath.Join(dir, "controller.yaml"), Now: time.Now(),
		AsOwner: func(fn func() error) error { return fn() }, Share: func(string) error { return nil }}
}

func TestRestoreGivesAllBack(t *testing.T) {
	raw, from := made(t, false)
	a, err := open(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := host(dir, testkit.EmptyDatabase(t))
	if err := a.Restore(t.Context(), target(c, dir)); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(filepath.Dir(from.DataDir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(d.Name(), ".") || strings.HasPrefix(d.Name(), "scratch") {
			return err
		}
		rel, err := filepath.Rel(filepath.Dir(from.DataDir), path)
		if err != nil {
			return err
		}
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(dir, rel))
		if err != nil {
			return err
		}
		info, err := os.Stat(filepath.Join(dir, rel))
		if !bytes.Equal(got, want) || info.Mode().Perm() != 0o600 {
			t.Errorf("%s is not what it was: %v", rel, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "controller.yaml")); err != nil || string(got) != "# text\n" {
		t.Errorf("the configuration is %q, %v", got, err)
	}
	s, err := store.New(t.Context(), store.Config{URL: c.Database.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if since, _, err := s.Incarnations.Frozen(t.Context()); err != nil || since.IsZero() {
		t.Errorf("the fleet is not frozen: %v", err)
	}
}

// TestATargetThatHasSomethingIsRefused: with the objects in the way, and nothing written.
func TestATargetThatHasSomethingIsRefused(t *testing.T) {
	raw, from := made(t, true)
	a, err := open(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	err = a.Restore(t.Context(), target(from, t.TempDir()))
	for _, want := range []string{"nothing was restored", from.TokensFile, "has ca, images", "the database has tables"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %q: %v", want, err)
		}
	}
	dir := t.TempDir()
	if err := a.Restore(t.Context(), target(host(dir, from.Database.URL), dir)); err == nil {
		t.Error("a database with tables was taken")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it has left %v, %v", left, err)
	}
}

// unpacked is what the frame holds, empty where it holds nothing whole.
func unpacked(t *testing.T, raw []byte) []byte {
	t.Helper()
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	plain, err := z.DecodeAll(raw, nil)
	if err != nil {
		return nil
	}
	return plain
}

// TestADamagedBackupIsRefused flips a bit at many places, and cuts the file short. Another way to write the same bytes,
// such as a reference to other zeros, is no damage.
func TestADamagedBackupIsRefused(t *testing.T) {
	raw, _ := made(t, true)
	plain := unpacked(t, raw)
	for at := 16; at < len(raw); at += len(raw)/200 + 1 {
		damaged := slices.Clone(raw)
		damaged[at] ^= 0x10
		if _, err := open(t, damaged); err == nil && !bytes.Equal(unpacked(t, damaged), plain) {
			t.Errorf("a flipped bit of byte %d of %d was not noticed", at, len(raw))
		}
	}
	for _, size := range []int{0, 3, 100, len(raw) / 2, len(raw) - 1} {
		if _, err := open(t, raw[:size]); err == nil {
			t.Errorf("%d of %d bytes were taken for a backup", size, len(raw))
		}
	}
	if _, err := open(t, append(slices.Clone(raw), raw...)); err == nil {
		t.Error("a backup with something after it was taken")
	}
}

// entry is a member of an archive that was made elsewhere.
type entry struct {
	tar.Header
	data []byte
}

func unpack(t *testing.T, raw []byte) (m backup.Manifest, out []entry) {
	t.Helper()
	z, err := zstd.NewReader(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	r := tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, entry{*h, data})
	}
	if err := json.Unmarshal(out[0].data, &m); err != nil {
		t.Fatal(err)
	}
	return m, out[1:]
}

func repack(t *testing.T, m backup.Manifest, entries []entry) []byte {
	t.Helper()
	manifest, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	first := entry{tar.Header{Typeflag: tar.TypeReg, Name: "manifest.json", Size: int64(len(manifest))}, manifest}
	for _, e := range append([]entry{first}, entries...) {
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestAHostileBackupIsRefused: paths outside, links, sizes, other members, and what another version has made.
func TestAHostileBackupIsRefused(t *testing.T) {
	raw, _ := made(t, true)
	m, entries := unpack(t, raw)
	if _, err := open(t, repack(t, m, entries)); err != nil {
		t.Fatalf("what is only packed again: %v", err)
	}
	for name, change := range map[string]func(*backup.Manifest, *[]entry){
		"a path outside": func(m *backup.Manifest, e *[]entry) {
			m.Members[0].Name, (*e)[0].Name = "../controller.yaml", "../controller.yaml"
		},
		"a path outside below the CA": func(m *backup.Manifest, e *[]entry) {
			m.Members[3].Name, (*e)[3].Name = "ca/../../authorized_keys", "ca/../../authorized_keys"
		},
		"an absolute path": func(m *backup.Manifest, e *[]entry) {
			m.Members[3].Name, (*e)[3].Name = "/etc/cron.d/x", "/etc/cron.d/x"
		},
		"a path outside that the manifest does not know": func(_ *backup.Manifest, e *[]entry) {
			(*e)[3].Name = "../x"
		},
		"a link": func(m *backup.Manifest, e *[]entry) {
			(*e)[1].Typeflag, (*e)[1].Linkname, (*e)[1].Size, (*e)[1].data = tar.TypeSymlink, "/etc/passwd", 0, nil
			m.Members[1].Size = 0
		},
		"a hard link": func(m *backup.Manifest, e *[]entry) {
			(*e)[1].Typeflag, (*e)[1].Linkname, (*e)[1].Size, (*e)[1].data = tar.TypeLink, "/etc/passwd", 0, nil
			m.Members[1].Size = 0
		},
		"more bytes than the manifest says": func(_ *backup.Manifest, e *[]entry) {
			(*e)[1].data = append((*e)[1].data, 'x')
			(*e)[1].Size++
		},
		"a huge small file": func(m *backup.Manifest, _ *[]entry) { m.Members[1].Size = 1 << 40 },
		"other bytes":       func(_ *backup.Manifest, e *[]entry) { (*e)[1].data = bytes.Repeat([]byte{'x'}, len((*e)[1].data)) },
		"a member twice": func(m *backup.Manifest, e *[]entry) {
			m.Members, *e = append(m.Members, m.Members[1]), append(*e, (*e)[1])
		},
		"a member not listed": func(_ *backup.Manifest, e *[]entry) { *e = append(*e, (*e)[1]) },
		"a member missing":    func(_ *backup.Manifest, e *[]entry) { *e = (*e)[:len(*e)-1] },
		"no tokens": func(m *backup.Manifest, e *[]entry) {
			m.Members, *e = slices.Delete(m.Members, 1, 2), slices.Delete(*e, 1, 2)
		},
		"a newer schema": func(m *backup.Manifest, _ *[]entry) { m.Schema = 100_000 },
		"a newer format": func(m *backup.Manifest, _ *[]entry) { m.Format++ },
	} {
		t.Run(name, func(t *testing.T) {
			changed, list := m, slices.Clone(entries)
			changed.Members = slices.Clone(m.Members)
			for i := range list {
				list[i].data = slices.Clone(list[i].data)
			}
			change(&changed, &list)
			_, err := open(t, repack(t, changed, list))
			if err == nil || !strings.Contains(err.Error(), "nothing was restored") {
				t.Errorf("it was taken: %v", err)
			}
		})
	}
}
