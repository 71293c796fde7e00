package image

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
)

// typed is a disk whose partitions are of these types, as they are on the disk.
func typed(t *testing.T, types ...string) []byte {
	t.Helper()
	b := disk(1, diskSize)
	for i, text := range types {
		guid, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		e := b[2*sector+128*i:]
		copy(e, guid)
		binary.LittleEndian.PutUint64(e[32:], uint64(2048*(i+1)))
		binary.LittleEndian.PutUint64(e[40:], uint64(2048*(i+2)-1))
	}
	seal(b)
	return b
}

// TestAnImageSaysWhichArchitectureItIsFor: by the types of its partitions, in every format; the announced one must not
// differ.
func TestAnImageSaysWhichArchitectureItIsFor(t *testing.T) {
	const (
		rootX86, rootARM = "e3bc684fcde8b14d96e7fbcaf984b709", "45b021b9f01dc341af444c6f280d3fae"
		usrARM           = "5010e0b05fee9043949a9117dafbd150"
	)
	r := newRig(t)
	for i, c := range []struct {
		types     []string
		said      string
		want, not string
	}{
		{nil, "", "amd64", ""}, {nil, "arm64", "arm64", ""}, {[]string{rootX86}, "", "amd64", ""},
		{[]string{rootARM}, "", "arm64", ""},
		{[]string{rootARM, usrARM}, "arm64", "arm64", ""}, {[]string{rootARM, rootX86}, "", "amd64", ""},
		{[]string{rootARM}, "amd64", "", "IMAGE_UNSUPPORTED"}, {[]string{rootX86}, "arm64", "", "IMAGE_UNSUPPORTED"},
	} {
		plain := typed(t, c.types...)
		for format, file := range map[string][]byte{"raw": plain, "raw.zst": packed(t, plain), "qcow2": qemuImg(t, plain)} {
			ref := format + "-" + string(rune('a'+i))
			im, err := r.Upload(t.Context(), &pb.Image{ImageRef: ref, Kind: "os", Arch: c.said}, bytes.NewReader(file), "tester")
			if im.GetArch() != c.want || c.not != "" && !failure.HasReason(err, c.not) || c.not == "" && err != nil {
				t.Errorf("%s of %v announced as %q: %q, %v", format, c.types, c.said, im.GetArch(), err)
			}
			if c.not != "" {
				continue
			}
			again, err := r.Upload(t.Context(), &pb.Image{ImageRef: ref, Kind: "os", Sha256Source: im.GetSha256Source(),
				Sha256Raw: im.GetSha256Raw()},
				bytes.NewReader(file), "tester")
			if err != nil || again.GetArch() != c.want {
				t.Errorf("%s once more: %q, %v", format, again.GetArch(), err)
			}
		}
	}
}
