package image_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/disk/block"
	"github.com/ingot-metal/ingot/agent/disk/disktest"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/gpt"
)

// rawSize is no whole number of pages, and diskSize just enough for it.
const (
	rawSize  = 7<<20 + 3*512
	diskSize = 72 << 20
)

// raw is an image with two partitions, made by a tool that is not ours, with data, zeros, and data behind the zeros.
var raw = sync.OnceValue(func() []byte {
	dir, err := os.MkdirTemp("", "image-test")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "raw")
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(f.Truncate(rawSize), f.Close())
	}
	if err != nil {
		panic(err)
	}
	out, err := exec.Command("sgdisk", "-n", "1:2048:+1M", "-t", "1:ef00", "-c", "1:ESP", "-n", "2:0:0", "-c", "2:root",
		"-A", "1:set:2", path).CombinedOutput()
	if err != nil {
		panic("sgdisk (Debian package gdisk): " + err.Error() + ": " + string(out))
	}
	b, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b[:440]) // boot code
	r.Read(b[1<<20 : 3<<20])
	r.Read(b[5<<20 : 6<<20+1000])
	return b
})

var packed = sync.OnceValue(func() []byte {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		panic(err)
	}
	return z.EncodeAll(raw(), nil)
})

// stateFS stands for the file system of the state partition.
var stateFS = bytes.Repeat([]byte("state "), 300_000)

// rig is one Write with everything that can go wrong with it.
type rig struct {
	disk     *disktest.Disk
	to       image.Disk // nil: disk
	file     []byte
	format   image.Format
	handler  http.Handler // nil: serves file
	job      image.Job
	commit   image.Commit
	commits  int
	progress []image.Progress
	patience time.Duration
}

func newRig() *rig {
	r := &rig{disk: disktest.New(diskSize), file: packed(), format: image.RawZstd, patience: 300 * time.Millisecond}
	r.job = image.Job{
		RawSize: rawSize, RawDigest: sha256.Sum256(raw()), MinimumDisk: 8 << 20,
		State: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(stateFS)), nil },
		Identity: func(context.Context) (map[string][]byte, error) {
			return map[string][]byte{"token": []byte("secret")}, nil
		},
		Clock: clock.Real(),
	}
	r.job.Fill = func(_ context.Context, off, size int64, files map[string][]byte) error {
		b := block.Buffer(block.Alignment)
		copy(b, files["token"])
		_, err := r.target().WriteAt(b, off+size-block.Alignment)
		return err
	}
	r.job.Committing = func(_ context.Context, c image.Commit) error {
		r.commit = c
		r.commits++
		return nil
	}
	r.job.Progress = func(p image.Progress) { r.progress = append(r.progress, p) }
	return r
}

func (r *rig) serve(w http.ResponseWriter, req *http.Request) {
	if r.handler != nil {
		r.handler.ServeHTTP(w, req)
		return
	}
	http.ServeContent(w, req, "", noTime, bytes.NewReader(r.file))
}

// write runs it. Servers that stay away are given up soon.
func (r *rig) write(ctx context.Context, t *testing.T) (image.Evidence, error) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(r.serve))
	defer srv.Close()
	src := image.Source{
		URL: srv.URL + "/blob/x", Size: int64(len(r.file)), Client: image.NewClient(), Clock: hurried{clock.Real()},
		Log: slog.New(slog.DiscardHandler), Patience: r.patience,
	}
	defer src.Client.CloseIdleConnections()
	r.job.Disk = r.target()
	if r.job.Open == nil {
		r.job.Open = func(ctx context.Context) (io.ReadCloser, error) { return image.Open(ctx, src, r.format) }
		defer func() { r.job.Open = nil }()
	}
	return image.Write(ctx, r.job)
}

func (r *rig) target() image.Disk {
	if r.to != nil {
		return r.to
	}
	return r.disk
}

func reasonOf(err error) baremetalv1.Reason {
	var e *image.Error
	if errors.As(err, &e) {
		return e.Reason
	}
	return baremetalv1.Reason_REASON_UNSPECIFIED
}

// primary returns the partition table that is durable at the beginning of the disk, or nil.
func primary(d *disktest.Disk) (*gpt.Table, []byte) {
	head := make([]byte, gpt.HeadSize)
	d.Durable(head, 0)
	table, err := gpt.Parse(head, d.Sector())
	if err != nil {
		return nil, head
	}
	return table, head
}

// hasBackup reports whether firmware would find a table at the end of the disk.
func hasBackup(d *disktest.Disk) bool {
	b := make([]byte, 8)
	d.Durable(b, d.Size()-512)
	return string(b) == "EFI PART"
}

// holdsImage compares the durable content with the image, from its second MiB on.
func holdsImage(d *disktest.Disk) bool {
	got := make([]byte, rawSize-gpt.HeadSize)
	d.Durable(got, gpt.HeadSize)
	return bytes.Equal(got, raw()[gpt.HeadSize:])
}

func mustNotBoot(t *testing.T, d *disktest.Disk) {
	t.Helper()
	if table, _ := primary(d); table != nil {
		t.Error("there is a partition table at the beginning")
	}
	if hasBackup(d) {
		t.Error("there is a partition table at the end")
	}
}

// mustBoot checks the whole disk.
func mustBoot(t *testing.T, r *rig, got image.Evidence) {
	t.Helper()
	table, head := primary(r.disk)
	if table == nil || !holdsImage(r.disk) {
		t.Fatalf("table %v, image whole: %t", table, holdsImage(r.disk))
	}
	if err := r.commit.Undo.Apply(head); err != nil || !bytes.Equal(head, raw()[:gpt.HeadSize]) {
		t.Errorf("the patch does not lead back to the image's first MiB (%v)", err)
	}
	p := table.Partitions()[2]
	if p.Name != image.StateName || p.Size != image.StateSize || p.ID.String() != got.StateID ||
		got.StateID != r.commit.StateID {
		t.Errorf("state partition %+v, evidence %q, commit %q", p, got.StateID, r.commit.StateID)
	}
	state := make([]byte, len(stateFS))
	r.disk.Durable(state, p.Offset)
	token := make([]byte, 6)
	r.disk.Durable(token, p.Offset+p.Size-block.Alignment)
	if !bytes.Equal(state, stateFS) || string(token) != "secret" {
		t.Errorf("state partition holds %.20q, token %q", state, token)
	}
	if err := image.Check(t.Context(), r.disk, rawSize, sha256.Sum256(raw()), r.commit); err != nil {
		t.Errorf("Check: %v", err)
	}
}

// mustPleaseOthers asks a tool that is not ours what it thinks of the tables.
func mustPleaseOthers(t *testing.T, d *disktest.Disk) {
	t.Helper()
	all := make([]byte, d.Size())
	d.Durable(all, 0)
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("sgdisk", "-v", path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "No problems found") {
		t.Errorf("sgdisk -v: %s (%v)", out, err)
	}
}

// headWrites counts the writes of the first MiB that are not zeros, by what reached the disk.
func headWrites(d *disktest.Disk) int {
	return len(slices.DeleteFunc(d.Writes(), func(s disktest.Span) bool { return s.Off != 0 }))
}
