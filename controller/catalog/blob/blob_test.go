package blob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

func open(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := Open(Config{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func put(t *testing.T, d *Dir, content string) string {
	t.Helper()
	w, err := d.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := io.WriteString(w, content); err != nil {
		t.Fatal(err)
	}
	if err := w.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Place(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w.SHA256()
}

func has(t *testing.T, d *Dir, digest string) bool {
	t.Helper()
	there, err := d.Has(t.Context(), digest)
	if err != nil {
		t.Error(err)
	}
	return there
}

func sum(content string) string {
	h := sha256.Sum256([]byte(content))
	return hex.EncodeToString(h[:])
}

func incomingOf(t *testing.T, path string) []string {
	t.Helper()
	list, err := os.ReadDir(filepath.Join(path, incoming))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range list {
		out = append(out, e.Name())
	}
	return out
}

func TestABlobIsFoundUnderItsDigest(t *testing.T) {
	d := open(t, t.TempDir())
	digest := put(t, d, "hello")
	if digest != sum("hello") || !has(t, d, digest) {
		t.Fatalf("digest %s", digest)
	}
	if again := put(t, d, "hello"); again != digest {
		t.Errorf("the same content has digest %s", again)
	}
	f, size, err := d.Open(t.Context(), digest, 0)
	if err != nil || size != 5 {
		t.Fatalf("%d, %v", size, err)
	}
	defer f.Close()
	if err := d.Remove(t.Context(), digest); err != nil {
		t.Fatal(err)
	}
	if all, err := io.ReadAll(f); err != nil || string(all) != "hello" {
		t.Errorf("a removed blob that is being read: %q, %v", all, err)
	}
	if err := d.Remove(t.Context(), digest); err != nil {
		t.Errorf("remove again: %v", err)
	}
	if _, _, err := d.Open(t.Context(), digest, 0); !failure.HasReason(err, "BLOB_NOT_FOUND") {
		t.Errorf("%v", err)
	}
}

func TestNamesThatAreNoDigests(t *testing.T) {
	path := t.TempDir()
	d := open(t, filepath.Join(path, "blobs"))
	secret := strings.Repeat("a", 64)
	if err := os.WriteFile(filepath.Join(path, secret), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", ".", "..", "../" + secret, secret[:63], strings.ToUpper(secret), secret + "\n",
		"/etc/passwd", incoming} {
		if _, _, err := d.Open(t.Context(), name, 0); !failure.HasReason(err, "BLOB_NOT_FOUND") {
			t.Errorf("open %q: %v", name, err)
		}
		if has(t, d, name) {
			t.Errorf("has %q", name)
		}
		if err := d.Remove(t.Context(), name); err != nil {
			t.Errorf("remove %q: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(path, secret)); err != nil {
		t.Error(err)
	}
}

func TestWhatWasNotPlacedIsGone(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	w, err := d.Create()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("half")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if list, err := d.List(t.Context()); err != nil || len(list) != 0 || len(incomingOf(t, path)) != 0 {
		t.Errorf("left: %v, %v, %v", list, incomingOf(t, path), err)
	}
}

// TestOpenSweepsWhatNobodyWrites: a file that is being written, by this process or another, is left alone.
func TestOpenSweepsWhatNobodyWrites(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	w, err := d.Create()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path, incoming, "blob-left"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	digest := put(t, d, "whole")
	d = open(t, path)
	if left := incomingOf(t, path); len(left) != 1 || left[0] != filepath.Base(w.f.Name()) {
		t.Errorf("incoming: %v", left)
	}
	if !has(t, d, digest) {
		t.Error("a whole blob was swept")
	}
	if _, err := w.Write([]byte("more")); err != nil {
		t.Fatal(err)
	}
	if err := w.Place(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil || !has(t, d, sum("more")) {
		t.Errorf("%v", err)
	}
}

func TestAFullDisk(t *testing.T) {
	path := t.TempDir()
	d, err := Open(Config{Path: path, Reserve: 1 << 62})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(); !failure.HasReason(err, "IMAGE_STORE_FULL") || failure.Retryable(err) {
		t.Errorf("below the reserve: %v", err)
	}
	d = open(t, path)
	if err := d.Room(1 << 62); !failure.HasReason(err, "IMAGE_STORE_FULL") {
		t.Errorf("more than any disk: %v", err)
	}
	w, err := d.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer failpoint.Set("blob.at-write", failpoint.Call(func(context.Context) error { return unix.ENOSPC }).At(2))()
	if _, err := w.Write([]byte("one")); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("two")); !failure.HasReason(err, "IMAGE_STORE_FULL") {
		t.Errorf("ENOSPC: %v", err)
	}
	if err := w.Close(); err != nil || len(incomingOf(t, path)) != 0 {
		t.Errorf("%v, left %v", err, incomingOf(t, path))
	}
}

// TestALongFileIsStoppedInTime: room is looked at again while a file grows.
func TestALongFileIsStoppedInTime(t *testing.T) {
	d := open(t, t.TempDir())
	w, err := d.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	chunk := make([]byte, 8<<20)
	for range lookEvery / len(chunk) {
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	d.reserve = 1 << 62
	if _, err := w.Write(chunk); !failure.HasReason(err, "IMAGE_STORE_FULL") {
		t.Errorf("%v", err)
	}
}

func TestManyWritersOfTheSame(t *testing.T) {
	path := t.TempDir()
	d := open(t, path)
	content := strings.Repeat("same", 100_000)
	g, _ := task.New(t.Context())
	for range 8 {
		g.Go("writer", func(context.Context) error {
			w, err := d.Create()
			if err != nil {
				return err
			}
			defer w.Close()
			if _, err := io.Copy(w, strings.NewReader(content)); err != nil {
				return err
			}
			return w.Place(t.Context())
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	list, err := d.List(t.Context())
	if err != nil || !slices.Equal(list, []Info{{sum(content), int64(len(content))}}) || len(incomingOf(t, path)) != 0 {
		t.Errorf("%v, %v, incoming %v", list, err, incomingOf(t, path))
	}
	f, _, err := d.Open(t.Context(), sum(content), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, []byte(content)) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
