package ca

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// mounted makes the files of a CA as a volume of Kubernetes shows them: links to files that a group may read.
func mounted(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	data := filepath.Join(dir, "..data")
	if err := os.Mkdir(data, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := MakeFiles(data, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, name := range entries(t, data) {
		if err := os.Chmod(filepath.Join(data, name), 0o440); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestControllersOfOneSecretHaveOneCA: each copies it at its first start, and another CA is refused from then on.
func TestControllersOfOneSecretHaveOneCA(t *testing.T) {
	t.Parallel()
	from := mounted(t)
	one, err := New(Config{Dir: filepath.Join(t.TempDir(), "ca"), From: from})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "ca")
	for range 2 { // the second finds what the first has copied
		other, err := New(Config{Dir: dir, From: from})
		if err != nil {
			t.Fatal(err)
		}
		if one.RootHash() != other.RootHash() || !one.GrantKey().Equal(other.GrantKey()) {
			t.Fatal("two controllers have different keys")
		}
	}
	if _, err := New(Config{Dir: dir, From: mounted(t)}); err == nil || !strings.Contains(err.Error(), "another CA") {
		t.Fatalf("another CA: %v", err)
	}
	if _, err := New(Config{Dir: dir}); err != nil {
		t.Fatalf("without the files that it came from: %v", err)
	}
}

// TestACopyIsWholeOrNotThere: what cannot be loaded is not kept, and nothing is made in its place.
func TestACopyIsWholeOrNotThere(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(from string) error{
		grantKey:        func(from string) error { return os.Remove(filepath.Join(from, grantKey)) },
		intermediateCrt: func(from string) error { return os.Remove(filepath.Join(from, intermediateCrt)) },
		"does not belong": func(from string) error {
			other := filepath.Join(mounted(t), "..data", intermediateKey)
			return os.Rename(other, filepath.Join(from, "..data", intermediateKey))
		},
	} {
		from, dir := mounted(t), filepath.Join(t.TempDir(), "ca")
		if err := damage(from); err != nil {
			t.Fatal(err)
		}
		if _, err := New(Config{Dir: dir, From: from}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Stat(filepath.Join(dir, version)); !os.IsNotExist(err) {
			t.Errorf("%s: a first generation is there (%v)", name, err)
		}
	}
	from := mounted(t)
	if err := os.Remove(filepath.Join(from, rootKey)); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Dir: filepath.Join(t.TempDir(), "ca"), From: from}); err != nil {
		t.Errorf("the root's key is away: %v", err)
	}
}
