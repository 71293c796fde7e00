package image

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/store"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// disk makes an image with a partition table, one partition, and content that depends on the seed: some random, some
// zero, as disks are.
func disk(seed uint64, size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	for at := 1 << 20; at+(128<<10) <= size; at += 512 << 10 {
		_, _ = r.Read(b[at : at+(128<<10)]) // never fails
	}
	entries := b[2*sector : 2*sector+128*128]
	_, _ = r.Read(entries[:32])
	binary.LittleEndian.PutUint64(entries[32:], 2048)
	binary.LittleEndian.PutUint64(entries[40:], uint64(size/sector)-34)
	header := b[sector : 2*sector]
	copy(header, "EFI PART")
	for at, v := range map[int]uint32{8: 0x10000, 12: 92, 80: 128, 84: 128} {
		binary.LittleEndian.PutUint32(header[at:], v)
	}
	for at, v := range map[int]uint64{24: 1, 32: uint64(size/sector) - 1, 40: 34, 48: uint64(size/sector) - 34, 72: 2} {
		binary.LittleEndian.PutUint64(header[at:], v)
	}
	seal(b)
	return b
}

// seal computes the checksums of a partition table anew.
func seal(b []byte) {
	header := b[sector : sector+92]
	binary.LittleEndian.PutUint32(header[88:], crc32.ChecksumIEEE(b[2*sector:2*sector+128*128]))
	clear(header[16:20])
	binary.LittleEndian.PutUint32(header[16:], crc32.ChecksumIEEE(header))
}

func packed(t testing.TB, b []byte, o ...zstd.EOption) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, o...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func unpackedBytes(t testing.TB, b []byte) []byte {
	t.Helper()
	d, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	out, err := d.DecodeAll(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// qemuImg makes a qcow2 of raw bytes.
func qemuImg(t testing.TB, b []byte, args ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.raw"), filepath.Join(dir, "out.qcow2")
	if err := os.WriteFile(in, b, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, args...), in, out)...)
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func run(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %v (package qemu-utils): %v\n%s", args, err, out)
	}
}

// rig is a catalogue over a real database and directory.
type rig struct {
	*Catalogue
	t     *testing.T
	store *store.Store
	blobs *blob.Dir
	dir   string
}

func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{t: t, store: storetest.New(t), dir: t.TempDir()}
	var err error
	if r.blobs, err = blob.Open(blob.Config{Path: r.dir}); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Blobs: r.blobs, Store: r.store.Catalog, Logger: testkit.Logger(t)}
	for _, c := range change {
		c(&cfg)
	}
	r.Catalogue = New(cfg)
	return r
}

func (r *rig) put(im *pb.Image, file []byte) (*pb.Image, error) {
	if im.GetKind() == "" {
		im.Kind = "os"
	}
	if im.GetArch() == "" {
		im.Arch = "amd64"
	}
	return r.Upload(r.t.Context(), im, bytes.NewReader(file), "tester")
}

func (r *rig) mustPut(ref string, file []byte) *pb.Image {
	r.t.Helper()
	im, err := r.put(&pb.Image{ImageRef: ref}, file)
	if err != nil {
		r.t.Fatal(err)
	}
	return im
}

// stored reads a blob.
func (r *rig) stored(sum string) []byte {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, sum))
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// wantTidy fails unless the blobs are those that entries name, whole, and nothing is half written.
func (r *rig) wantTidy() {
	r.t.Helper()
	half, err := os.ReadDir(filepath.Join(r.dir, "incoming"))
	if err != nil || len(half) > 0 {
		r.t.Errorf("half written: %v, %v", half, err)
	}
	images, err := r.store.Catalog.ListImages(r.t.Context(), catalogstore.ImageFilter{Limit: 1000})
	if err != nil {
		r.t.Fatal(err)
	}
	named := map[string]bool{}
	for _, im := range images {
		named[im.GetSha256File()] = true
		if got := digestOf(r.stored(im.GetSha256File())); got != im.GetSha256File() {
			r.t.Errorf("%s has digest %s", im.GetSha256File(), got)
		}
	}
	all, err := r.blobs.List(r.t.Context())
	if err != nil || len(all) != len(named) {
		r.t.Errorf("%d blobs for %d that are named (%v)", len(all), len(named), err)
	}
}

func wantReason(t testing.TB, err error, reason string) {
	t.Helper()
	if !failure.HasReason(err, reason) {
		t.Errorf("got %v, want %s", err, reason)
	}
}
