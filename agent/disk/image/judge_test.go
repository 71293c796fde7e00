package image_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/internal/gpt"
)

// partitions are those of an image.
func partitions(t *testing.T, img []byte) []gpt.Partition {
	t.Helper()
	table, err := gpt.Parse(img[:gpt.HeadSize], 512)
	if err != nil {
		t.Fatal(err)
	}
	return table.Partitions()
}

// TestWhatCannotBecomeARootIsRefusedBeforeTheFirstByte: the old system stays, and why is named.
func TestWhatCannotBecomeARootIsRefusedBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	kernel := firstboot.Kernel{Major: 6, Minor: 12, Page: 4096}
	judge := func(p gpt.Partition, head []byte) string { return kernel.Refuses(head, p.Size, 512) }
	root := partitions(t, raw())[1]
	ext4 := bytes.Clone(raw())
	sb := ext4[root.Offset+1024:]
	clear(sb[:1024])
	binary.LittleEndian.PutUint32(sb[24:], 2)
	binary.LittleEndian.PutUint16(sb[56:], 0xef53)
	odd := bytes.Clone(ext4)
	binary.LittleEndian.PutUint32(odd[root.Offset+1024+96:], 1<<30)
	for name, c := range map[string]struct {
		file   []byte
		size   int64
		format image.Format
		want   string
	}{
		"features of another kernel": {odd, rawSize, image.Raw, "partition 2 cannot be mounted here: ext4 has features"},
		"cut in its last partition":  {raw()[:root.Offset+root.Size-4096], root.Offset + root.Size - 4096, image.Raw, "the image is cut"},
		"bzip2":                      {append([]byte("BZh91AY&SY"), raw()...), rawSize, image.Raw, "compressed with bzip2"},
		"lz4":                        {append([]byte("\x04\x22\x4d\x18"), raw()...), rawSize, image.Raw, "compressed with lz4"},
		"zstd":                       {append(bytes.Clone(packed()), make([]byte, 2<<20)...), rawSize, image.Raw, "compressed with zstd"},
	} {
		r := newRig()
		r.file, r.format, r.job.RawSize, r.job.Judge = c.file, c.format, c.size, judge
		got, err := r.write(t.Context(), t)
		if err == nil || !strings.Contains(err.Error(), c.want) || reasonOf(err) != baremetalv1.Reason_IMAGE_UNSUPPORTED {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if n := len(r.disk.Writes()); n != 0 || got.Left != image.LeftAsItWas {
			t.Errorf("%s: %d writes, left %v", name, n, got.Left)
		}
	}
	for name, img := range map[string][]byte{
		"a root that mounts": ext4, "cut behind its last partition": raw()[:root.Offset+root.Size],
	} {
		r := newRig()
		r.file, r.format, r.job.RawSize, r.job.Judge = img, image.Raw, int64(len(img)), judge
		if _, err := r.write(t.Context(), t); err != nil && reasonOf(err) != baremetalv1.Reason_IMAGE_DIGEST_MISMATCH {
			t.Errorf("%s: %v", name, err)
		}
		if len(r.disk.Writes()) == 0 {
			t.Errorf("%s was not begun", name)
		}
	}
}

// TestTheJudgeReadsNoMoreThanItMust: the stream of its own ends behind the head of the likeliest root.
func TestTheJudgeReadsNoMoreThanItMust(t *testing.T) {
	t.Parallel()
	r := newRig()
	opened := 0
	r.job.Judge = func(gpt.Partition, []byte) string { return "no" }
	stop := errors.New("broken")
	img := bytes.Clone(raw())
	root := partitions(t, img)[1]
	copy(img[root.Offset:], "XFSB")
	r.job.Open = func(context.Context) (io.ReadCloser, error) {
		opened++
		if opened == 1 {
			return io.NopCloser(bytes.NewReader(img)), nil
		}
		return io.NopCloser(io.MultiReader(bytes.NewReader(img[:root.Offset+firstboot.ProbeSize]), failing{stop})), nil
	}
	if _, err := r.write(
		t.Context(),
		t,
	); errors.Is(err, stop) || err == nil ||
		!strings.Contains(err.Error(), "partition 2") {
		t.Errorf("%v", err)
	}
	if opened != 2 || len(r.disk.Writes()) != 0 {
		t.Errorf("opened %d times, %d writes", opened, len(r.disk.Writes()))
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
