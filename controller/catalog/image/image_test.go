package image

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/internal/zstream"
)

const diskSize = 8 << 20

func TestEveryFormatComesToTheSameDisk(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	raw := disk(1, diskSize)
	for name, c := range map[string]struct {
		file   []byte
		format string
	}{
		"raw": {raw, "raw"},
		"zst": {packed(t, raw), "raw.zst"},
		// several frames, as pzstd makes them
		"two":       {append(packed(t, raw[:1<<20]), packed(t, raw[1<<20:])...), "raw.zst"},
		"skippable": {pzstd(packed(t, raw[:1<<20]), packed(t, raw[1<<20:])), "raw.zst"},
		"qcow2":     {qemuImg(t, raw), "qcow2"},
		"deflate":   {qemuImg(t, raw, "-c"), "qcow2"},
		"zstd":      {qemuImg(t, raw, "-c", "-o", "compression_type=zstd"), "qcow2"},
		"old":       {qemuImg(t, raw, "-o", "compat=0.10"), "qcow2"},
		"clusters":  {qemuImg(t, raw, "-o", "cluster_size=4k"), "qcow2"},
		"bigger":    {qemuImg(t, raw, "-o", "cluster_size=2M"), "qcow2"},
		"refcounts": {qemuImg(t, raw, "-o", "lazy_refcounts=on"), "qcow2"},
	} {
		im := r.mustPut(name, c.file)
		if im.GetSha256Raw() != digestOf(raw) || im.GetSizeBytes() != diskSize || im.GetMinimumDiskBytes() != diskSize+
			64<<20 {
			t.Errorf("%s: %v", name, im)
		}
		stored := r.stored(im.GetSha256File())
		if im.GetFileSizeBytes() != int64(len(stored)) {
			t.Errorf("%s: %d bytes stored, said to be %d", name, len(stored), im.GetFileSizeBytes())
		}
		switch c.format {
		case "qcow2":
			if im.GetFormat() != "raw.zst" || im.GetSha256Source() != digestOf(c.file) ||
				!bytes.Equal(unpackedBytes(t, stored), raw) {
				t.Errorf("%s: %v", name, im)
			}
		default:
			if im.GetFormat() != c.format || im.GetSha256Source() != "" || !bytes.Equal(stored, c.file) {
				t.Errorf("%s: %v", name, im)
			}
		}
	}
	r.wantTidy()
	if all, err := r.blobs.List(t.Context()); err != nil || len(all) != 5 {
		t.Errorf("%d blobs: every qcow2 must become the same one (%v)", len(all), err)
	}
}

func TestAnnouncementsAreHeld(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	raw := disk(1, diskSize)
	file, qcow := packed(t, raw), qemuImg(t, raw)
	other := strings.Repeat("0", 64)
	for name, c := range map[string]struct {
		im     *pb.Image
		file   []byte
		reason string
	}{
		"file":         {&pb.Image{Sha256File: other}, file, "IMAGE_DIGEST_MISMATCH"},
		"raw":          {&pb.Image{Sha256Raw: other}, file, "IMAGE_DIGEST_MISMATCH"},
		"source":       {&pb.Image{Sha256Source: other}, file, "IMAGE_DIGEST_MISMATCH"},
		"qcow2 file":   {&pb.Image{Sha256File: digestOf(qcow)}, qcow, "IMAGE_DIGEST_MISMATCH"},
		"qcow2 source": {&pb.Image{Sha256Source: other}, qcow, "IMAGE_DIGEST_MISMATCH"},
		"raw size":     {&pb.Image{SizeBytes: diskSize - 1}, file, "IMAGE_UNAVAILABLE"},
		"file size":    {&pb.Image{FileSizeBytes: int64(len(file)) + 1}, file, "IMAGE_UNAVAILABLE"},
		"disk":         {&pb.Image{MinimumDiskBytes: diskSize - 1}, file, "INVALID_FIELD"},
		"format":       {&pb.Image{Format: "raw.zst"}, raw, "IMAGE_UNSUPPORTED"},
		"other format": {&pb.Image{Format: "qcow2"}, raw, "IMAGE_UNSUPPORTED"},
		"no format":    {&pb.Image{Format: "raw"}, file, "IMAGE_UNSUPPORTED"},
	} {
		c.im.ImageRef = "x"
		_, err := r.put(c.im, c.file)
		t.Run(name, func(t *testing.T) { wantReason(t, err, c.reason) })
	}
	r.wantTidy()
	all := &pb.Image{
		ImageRef: "q", Sha256Source: digestOf(qcow), Sha256Raw: digestOf(raw), SizeBytes: diskSize,
		FileSizeBytes:    int64(len(qcow)),
		MinimumDiskBytes: 1 << 30, Firmware: []string{"uefi"}, Format: "qcow2",
	}
	im, err := r.put(all, qcow)
	if err != nil || im.GetMinimumDiskBytes() != 1<<30 || im.GetFirmware()[0] != "uefi" {
		t.Errorf("all that is right: %v, %v", im, err)
	}
}

func TestFilesThatAreNoImages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	raw := disk(1, diskSize)
	file := packed(t, raw)
	changed := func(b []byte, at int, to ...byte) []byte {
		b = bytes.Clone(b)
		copy(b[at:], to)
		return b
	}
	resealed := func(change func(b []byte)) []byte {
		b := bytes.Clone(raw)
		change(b)
		seal(b)
		return b
	}
	qcow := qemuImg(t, raw)
	big := make([]byte, 4096+diskSize)
	copy(big[4096:], raw[512:])
	checked := bytes.Clone(file)
	checked[len(checked)-1] ^= 1 // the frame's checksum comes last (RFC 8878, 3.1.1)
	for name, c := range map[string]struct {
		file   []byte
		reason string
	}{
		"zeros":             {make([]byte, diskSize), "IMAGE_UNSUPPORTED"},
		"one byte":          {[]byte{1}, "IMAGE_UNSUPPORTED"},
		"odd size":          {raw[:diskSize-1], "IMAGE_UNSUPPORTED"},
		"cut partitions":    {raw[:diskSize-1<<20], "IMAGE_UNSUPPORTED"},
		"header's checksum": {changed(raw, sector+40, 35), "IMAGE_UNSUPPORTED"},
		"table's checksum":  {changed(raw, 2*sector+300, 1), "IMAGE_UNSUPPORTED"},
		"backup header":     {resealed(func(b []byte) { b[sector+24] = 9 }), "IMAGE_UNSUPPORTED"},
		"table elsewhere": {resealed(func(b []byte) { binary.LittleEndian.PutUint64(b[sector+72:], 1<<40) }),
			"IMAGE_UNSUPPORTED"},
		"huge table": {resealed(func(b []byte) { binary.LittleEndian.PutUint32(b[sector+80:], 1<<31) }),
			"IMAGE_UNSUPPORTED"},
		"no partition":      {resealed(func(b []byte) { clear(b[2*sector : 2*sector+128]) }), "IMAGE_UNSUPPORTED"},
		"4096-byte sectors": {big, "IMAGE_UNSUPPORTED"},
		"short zstd":        {file[:len(file)-100], "IMAGE_UNAVAILABLE"},
		"zstd checksum":     {checked, "IMAGE_DIGEST_MISMATCH"},
		"zstd and rubbish":  {append(bytes.Clone(file), "rubbish"...), "IMAGE_UNSUPPORTED"},
		"zstd of nothing":   {packed(t, nil), "IMAGE_UNSUPPORTED"},
		"long window":       {packed(t, raw, zstd.WithWindowSize(64<<20)), "IMAGE_UNSUPPORTED"},
		"short qcow2":       {magicQcow2, "IMAGE_UNSUPPORTED"},
		"qcow2 header":      {qcow[:4096], "IMAGE_UNSUPPORTED"},
		"encrypted qcow2":   {changed(qcow, qcow2CryptOffset, 0, 0, 0, 2), "IMAGE_UNSUPPORTED"},
		"corrupt qcow2":     {changed(qcow, qcow2Features+7, qcow2Corrupt), "IMAGE_UNSUPPORTED"},
		"extended qcow2":    {changed(qcow, qcow2Features+7, 1<<4), "IMAGE_UNSUPPORTED"},
		"qcow2 version":     {changed(qcow, 7, 4), "IMAGE_UNSUPPORTED"},
		"qcow2 clusters":    {changed(qcow, qcow2ClusterOffset+3, 30), "IMAGE_UNSUPPORTED"},
		"qcow2 tables":      {changed(qcow, qcow2L1Offset, 255), "IMAGE_UNSUPPORTED"},
		"huge qcow2":        {changed(qcow, qcow2SizeOffset, 1), "IMAGE_UNSUPPORTED"},
	} {
		_, err := r.put(&pb.Image{ImageRef: "x"}, c.file)
		t.Run(name, func(t *testing.T) { wantReason(t, err, c.reason) })
	}
	r.wantTidy()
}

// TestLongWindows: each frame has a window of its own, and a frame of known length has one of that length. Whichever it
// is, the image is refused by name when it is added.
func TestLongWindows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	raw := append(disk(1, diskSize), make([]byte, zstream.MaxWindow)...)
	half := len(raw) / 2
	enc, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true), zstd.WithWindowSize(64<<20))
	if err != nil {
		t.Fatal(err)
	}
	long := packed(t, raw[half:], zstd.WithWindowSize(64<<20))
	for name, file := range map[string][]byte{
		"first":      packed(t, raw, zstd.WithWindowSize(64<<20)),
		"later":      slices.Concat(packed(t, raw[:half]), long),
		"pzstd":      pzstd(packed(t, raw[:half]), long),
		"one length": enc.EncodeAll(raw, nil),
	} {
		_, err := r.put(&pb.Image{ImageRef: "x"}, file)
		t.Run(name, func(t *testing.T) {
			wantReason(t, err, "IMAGE_UNSUPPORTED")
			if !strings.Contains(err.Error(), "window of more than 32 MiB") {
				t.Errorf("refused with %q", err)
			}
		})
	}
	r.wantTidy()
}

// pzstd puts a skippable frame with the size of the next before each frame (contrib/pzstd/Pzstd.cpp, writeFile and
// SkippableFrame.h: magic 0x184D2A50, size 4).
func pzstd(frames ...[]byte) (out []byte) {
	for _, f := range frames {
		out = append(out, 0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0)
		out = append(binary.LittleEndian.AppendUint32(out, uint32(len(f))), f...)
	}
	return out
}

// TestATruncatedQcow2IsTheClientsError, wherever qemu-img's file is cut off, and never one of the controller.
func TestATruncatedQcow2IsTheClientsError(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for name, file := range map[string][]byte{
		"plain": qemuImg(t, disk(1, diskSize)), "deflate": qemuImg(t, disk(1, diskSize), "-c"),
		"zstd": qemuImg(t, disk(1, diskSize), "-c", "-o", "compression_type=zstd"),
	} {
		for _, percent := range []int{1, 10, 30, 50, 70, 90} {
			_, err := r.put(&pb.Image{ImageRef: "x"}, file[:len(file)*percent/100])
			if code := failure.From(err).Kind; err == nil || code == failure.KindInternal ||
				!failure.HasReason(err, "IMAGE_UNSUPPORTED") {
				t.Errorf("%s at %d %%: %v", name, percent, err)
			}
		}
	}
	whole := qemuImg(t, disk(1, diskSize))
	if _, err := r.put(&pb.Image{ImageRef: "x"}, whole[:len(whole)/2]); failure.From(err).Kind != failure.KindInvalid {
		t.Errorf("%v", err)
	}
	r.wantTidy()
}

// TestWhatTheInstallerWouldRefuseIsRefusedAtOnce: tables that sgdisk and our own installer make, and files of other
// tools.
func TestWhatTheInstallerWouldRefuseIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	table := func(change func(entry func(i int) []byte)) []byte {
		b := disk(1, diskSize)
		change(func(i int) []byte { return b[2*sector+128*i:][:128] })
		seal(b)
		return b
	}
	put := func(e []byte, first, last uint64, name string) {
		copy(e, "type type type ty")
		binary.LittleEndian.PutUint64(e[32:], first)
		binary.LittleEndian.PutUint64(e[40:], last)
		for i, c := range []byte(name) {
			e[56+2*i] = c
		}
	}
	iso := disk(1, diskSize)
	copy(iso[16*2048:], "\x01CD001\x01")
	for name, c := range map[string]struct {
		file []byte
		says string
	}{
		"full": {table(func(e func(int) []byte) {
			for i := range 128 {
				put(e(i), uint64(2048+8*i), uint64(2048+8*i+7), "p")
			}
		}), "all 128 entries"},
		"overlapping": {table(func(e func(int) []byte) { put(e(0), 2048, 4095, "a"); put(e(1), 4095, 5000, "b") }),
			"partitions 1 and 2 overlap"},
		"beyond": {table(func(e func(int) []byte) { put(e(0), 2048, diskSize/512, "a") }), "partition 1 is from"},
		"golden": {table(func(e func(int) []byte) { put(e(0), 2048, 4095, "a"); put(e(1), 4096, 5000, "INGOT-STATE") }),
			"partition 2 is called INGOT-STATE"},
		"fixed VHD": {vhd(t, disk(1, diskSize)), "a VHD"},
		"ISO":       {iso, "an ISO 9660 image"},
	} {
		for format, file := range map[string][]byte{"plain": c.file, "zst": packed(t, c.file)} {
			_, err := r.put(&pb.Image{ImageRef: "x"}, file)
			if !failure.HasReason(err, "IMAGE_UNSUPPORTED") || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, %s: %v", name, format, err)
			}
		}
	}
	r.wantTidy()
}

// vhd is a fixed VHD as qemu-img makes it.
func vhd(t *testing.T, b []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.raw"), filepath.Join(dir, "out.vhd")
	if err := os.WriteFile(in, b, 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "convert", "-f", "raw", "-O", "vpc", "-o", "subformat=fixed,force_size=on", in, out)
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestQcow2OpensNoOtherFile: an image may name files of the machine that opens it.
func TestQcow2OpensNoOtherFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	dir := t.TempDir()
	base, over := filepath.Join(dir, "base.raw"), filepath.Join(dir, "over.qcow2")
	if err := os.WriteFile(base, disk(1, diskSize), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, over)
	data := filepath.Join(dir, "data.qcow2")
	run(t, "convert", "-f", "raw", "-O", "qcow2", "-o", "data_file="+filepath.Join(dir, "data.raw"), base, data)
	for _, path := range []string{over, data} {
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.put(&pb.Image{ImageRef: "x"}, file); err == nil ||
			!strings.Contains(err.Error(), "IMAGE_UNSUPPORTED") {
			t.Errorf("%s: %v", filepath.Base(path), err)
		}
	}
	r.wantTidy()
}

func TestADiskThatFillsUp(t *testing.T) {
	r := newRig(t)
	raw := disk(1, diskSize)
	qcow := qemuImg(t, raw)
	var parts uint64
	full := func(at uint64) failpoint.Action {
		return failpoint.Call(func(context.Context) error { return unix.ENOSPC }).At(at)
	}
	restore := failpoint.Set("blob.at-write", failpoint.Call(func(context.Context) error { parts++; return nil }))
	r.mustPut("whole", qcow)
	restore()
	if _, err := r.Remove(t.Context(), "whole", "tester"); err != nil {
		t.Fatal(err)
	}
	for _, at := range []uint64{1, 2, parts / 3, parts / 2, parts - 1, parts} {
		restore := failpoint.Set("blob.at-write", full(at))
		_, err := r.put(&pb.Image{ImageRef: "x"}, qcow)
		restore()
		wantReason(t, err, "IMAGE_STORE_FULL")
		r.wantTidy()
	}
}

func TestFilesOfAnInstallerAreKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	file := packed(t, []byte("a compressed initramfs stays compressed"))
	im, err := r.put(&pb.Image{ImageRef: "i", Kind: "installer-initrd", Arch: "arm64"}, file)
	if err != nil || im.GetFormat() != "raw" || im.GetSha256Raw() != digestOf(file) ||
		im.GetSha256File() != digestOf(file) ||
		im.GetSizeBytes() != int64(len(file)) || im.GetMinimumDiskBytes() != 0 {
		t.Errorf("%v, %v", im, err)
	}
}

func TestTheSameAgainAndAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	raw, other := disk(1, diskSize), disk(2, diskSize)
	first := r.mustPut("x", raw)
	for name, im := range map[string]*pb.Image{
		"bare": {}, "source": {Sha256Source: digestOf(raw)}, "raw": {Sha256Raw: digestOf(raw)},
		"told": {MinimumDiskBytes: first.GetMinimumDiskBytes(), Sha256File: digestOf(raw)},
	} {
		im.ImageRef = "x"
		if again, err := r.put(im, raw); err != nil || again.GetCreatedAt().AsTime() != first.GetCreatedAt().AsTime() {
			t.Errorf("%s: %v, %v", name, again, err)
		}
	}
	for name, c := range map[string]struct {
		im   *pb.Image
		file []byte
	}{
		"bytes":        {&pb.Image{}, other},
		"known bytes":  {&pb.Image{Sha256Source: digestOf(other)}, other},
		"arch":         {&pb.Image{Arch: "arm64"}, raw},
		"known arch":   {&pb.Image{Arch: "arm64", Sha256Source: digestOf(raw)}, raw},
		"minimum disk": {&pb.Image{MinimumDiskBytes: 1 << 40}, raw},
		"firmware":     {&pb.Image{Firmware: []string{"bios"}}, raw},
	} {
		c.im.ImageRef = "x"
		_, err := r.put(c.im, c.file)
		t.Run(name, func(t *testing.T) { wantReason(t, err, "IMAGE_EXISTS") })
	}
	r.wantTidy()
}

func TestALostFileComesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	raw := disk(1, diskSize)
	im := r.mustPut("x", raw)
	if err := r.blobs.Remove(t.Context(), im.GetSha256File()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.put(&pb.Image{ImageRef: "x", Sha256Source: digestOf(raw)}, raw); err != nil {
		t.Fatal(err)
	}
	r.wantTidy()
}

func TestABlobStaysWhileAnEntryNamesIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	raw := disk(1, diskSize)
	r.mustPut("one", raw)
	r.mustPut("two", raw)
	for left, ref := range []string{"two", "one"} {
		if _, err := r.Remove(t.Context(), ref, "tester"); err != nil {
			t.Fatal(err)
		}
		r.wantTidy()
		if all, err := r.blobs.List(t.Context()); err != nil || len(all) != 1-left {
			t.Errorf("after %s: %v, %v", ref, all, err)
		}
	}
}

// TestSweepLeavesAnotherDatabasesFiles: a controller that is pointed at the wrong database must not empty the
// directory.
func TestSweepLeavesAnotherDatabasesFiles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	im := r.mustPut("x", disk(1, diskSize))
	other := newRig(t)
	stranger := New(Config{Blobs: r.blobs, Store: other.store.Catalog, Logger: testkit.Logger(t)})
	if err := stranger.Sweep(t.Context()); err != nil {
		t.Error(err)
	}
	if there, err := r.blobs.Has(t.Context(), im.GetSha256File()); err != nil || !there {
		t.Errorf("it has removed another's file (%v)", err)
	}
}
