package pki_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ingot-metal/ingot/internal/pki"
)

func TestStoreAndLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	keyPath, certPath := filepath.Join(dir, "agent.key"), filepath.Join(dir, "agent.crt")
	root, rootKey := issue(t, asCA, nil, nil)
	leaf, key := issue(t, asServer, root, rootKey)
	for range 2 { // the second time replaces the first
		if err := errors.Join(pki.StoreKey(keyPath, key), pki.StoreCerts(certPath, leaf, root)); err != nil {
			t.Fatal(err)
		}
	}
	gotKey, err := pki.LoadKey(keyPath)
	if err != nil || !gotKey.Equal(key) {
		t.Fatalf("key: %v", err)
	}
	certs, err := pki.LoadCerts(certPath)
	if err != nil || len(certs) != 2 || !certs[0].Equal(leaf) || !certs[1].Equal(root) {
		t.Fatalf("certificates: %d, %v", len(certs), err)
	}
	for path, want := range map[string]fs.FileMode{keyPath: 0o600, certPath: 0o644} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 2 {
		t.Fatalf("%d files left, %v", len(list), err)
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, key := issue(t, asCA, nil, nil)
	keyPEM, err := pki.EncodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384PEM, err := pki.EncodeKey(p384)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{
		"empty":    nil,
		"cut":      keyPEM[:len(keyPEM)/2],
		"two keys": append(append([]byte{}, keyPEM...), keyPEM...),
		"P-384":    p384PEM,
	} {
		path := filepath.Join(dir, "x")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := pki.LoadKey(path); err == nil {
			t.Errorf("%s: loaded as a key", name)
		}
		if _, err := pki.LoadCerts(path); err == nil {
			t.Errorf("%s: loaded as certificates", name)
		}
	}
	if _, err := pki.LoadKey(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing key: %v", err)
	}
	if _, err := pki.LoadCerts(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing certificates: %v", err)
	}
}

func TestFailedWriteLeavesTheOldFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target := filepath.Join(dir, "taken") // a directory: the rename onto it fails
	if err := os.MkdirAll(filepath.Join(target, "inside"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := pki.WriteFile(target, []byte("x"), 0o600); err == nil {
		t.Fatal("replaced a directory")
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 1 || !list[0].IsDir() {
		t.Fatalf("left behind: %v, %v", list, err)
	}
	if err := pki.WriteFile(filepath.Join(dir, "no", "file"), nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("missing directory: %v", err)
	}
}
