package image

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
)

// compressed is what a program makes of bytes.
func compressed(t testing.TB, b []byte, command ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = bytes.NewReader(b), &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v (packages gzip and xz-utils): %v\n%s", command, err, stderr.Bytes())
	}
	return out
}

func TestGzipAndXZBecomeTheSameFile(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	raw := disk(1, diskSize)
	gz, xz := []string{"gzip", "-c"}, []string{"xz", "-c"}
	half := func(command []string) []byte {
		return append(compressed(t, raw[:3<<20], command...), compressed(t, raw[3<<20:], command...)...)
	}
	for name, c := range map[string]struct {
		im   *pb.Image
		file []byte
	}{
		"gzip":       {&pb.Image{}, compressed(t, raw, gz...)},
		"gzip-best":  {&pb.Image{Format: "raw.gz"}, compressed(t, raw, "gzip", "-c", "-9")},
		"members":    {&pb.Image{}, half(gz)},
		"xz":         {&pb.Image{}, compressed(t, raw, xz...)},
		"xz-best":    {&pb.Image{Format: "raw.xz"}, compressed(t, raw, "xz", "-c", "-9e")},
		"streams":    {&pb.Image{}, half(xz)},
		"padded":     {&pb.Image{}, append(half(xz), 0, 0, 0, 0)},
		"threads":    {&pb.Image{}, compressed(t, raw, "xz", "-c", "-T2", "--block-size=1MiB")},
		"sha256":     {&pb.Image{}, compressed(t, raw, "xz", "-c", "--check=sha256")},
		"x86-filter": {&pb.Image{}, compressed(t, raw, "xz", "-c", "--x86", "--lzma2=preset=6")},
	} {
		c.im.ImageRef, c.im.Sha256Source = name, digestOf(c.file)
		im, err := r.put(c.im, c.file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		stored := r.stored(im.GetSha256File())
		if im.GetFormat() != "raw.zst" || im.GetSha256Source() != digestOf(c.file) ||
			im.GetSha256Raw() != digestOf(raw) || im.GetSizeBytes() != diskSize ||
			im.GetFileSizeBytes() != int64(len(stored)) || !bytes.Equal(unpackedBytes(t, stored), raw) {
			t.Errorf("%s: %v", name, im)
		}
	}
	r.wantTidy()
	if all, err := r.blobs.List(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%d blobs: each must become the same one (%v)", len(all), err)
	}
}

// TestDamagedGzipAndXZ: wherever a file is cut off or changed, it is refused, and by the client's fault.
func TestDamagedGzipAndXZ(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	raw := disk(1, diskSize)
	for _, program := range []string{"gzip", "xz"} {
		file := compressed(t, raw, program, "-c")
		for _, percent := range []int{1, 10, 50, 90, 99} {
			_, err := r.put(&pb.Image{ImageRef: "x"}, file[:len(file)*percent/100])
			if !failure.HasReason(err, "IMAGE_UNAVAILABLE") || !strings.Contains(err.Error(), "ends early") {
				t.Errorf("%s at %d %%: %v", program, percent, err)
			}
		}
		for _, at := range []int{12, len(file) / 3, len(file) / 2, len(file) - 8} {
			changed := bytes.Clone(file)
			changed[at] ^= 0x55
			_, err := r.put(&pb.Image{ImageRef: "x"}, changed)
			if err == nil || failure.From(err).Kind == failure.KindInternal {
				t.Errorf("%s changed at %d of %d: %v", program, at, len(file), err)
			}
		}
	}
	wrong := compressed(t, raw, "gzip", "-c")
	wrong[len(wrong)-8] ^= 1 // the checksum (RFC 1952, 2.3)
	_, err := r.put(&pb.Image{ImageRef: "x"}, wrong)
	wantReason(t, err, "IMAGE_DIGEST_MISMATCH")
	r.wantTidy()
}

func TestWhatIsRefusedInGzipAndXZ(t *testing.T) {
	t.Parallel()
	const most = 4 << 20
	r := newRig(t, func(c *Config) { c.MaxRaw = most })
	small, bomb := disk(1, most), make([]byte, 64<<20)
	for name, c := range map[string]struct {
		im   *pb.Image
		file []byte
		says string
	}{
		"gzip bomb":  {&pb.Image{}, compressed(t, bomb, "gzip", "-c"), "bigger than"},
		"xz bomb":    {&pb.Image{}, compressed(t, bomb, "xz", "-c", "-0"), "bigger than"},
		"zstd bomb":  {&pb.Image{}, packed(t, bomb), "bigger than"},
		"dictionary": {&pb.Image{}, compressed(t, small, "xz", "-c", "--lzma2=dict=65MiB"), "dictionary of more than 64 MiB"},
		"qcow2":      {&pb.Image{}, compressed(t, qemuImg(t, small), "gzip", "-c"), "a compressed qcow2"},
		"no disk":    {&pb.Image{}, compressed(t, small[most/2:], "xz", "-c"), "partition table"},
		"rubbish": {&pb.Image{}, append(compressed(t, small, "gzip", "-c"), "rubbish behind the stream"...),
			"no sound raw.gz"},
		"not gzip": {&pb.Image{Format: "raw.gz"}, small, "no sound raw.gz"},
		"not xz":   {&pb.Image{Format: "raw.xz"}, small, "no sound raw.xz"},
	} {
		c.im.ImageRef = "x"
		if _, err := r.put(c.im, c.file); !failure.HasReason(err, "IMAGE_UNSUPPORTED") ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.wantTidy()
	if _, err := r.put(&pb.Image{ImageRef: "fits"}, compressed(t, small, "gzip", "-c")); err != nil {
		t.Error(err)
	}
}
