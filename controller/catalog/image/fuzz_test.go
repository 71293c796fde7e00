package image

import (
	"bytes"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/lima-vm/go-qcow2reader/image/qcow2"
)

// FuzzTable: whatever the first bytes are, looking at them ends well.
func FuzzTable(f *testing.F) {
	whole := disk(1, 2<<20)
	f.Add(whole[:tableBytes], int64(len(whole)))
	f.Add(whole[:3*sector], int64(len(whole)))
	f.Add([]byte{}, int64(0))
	f.Fuzz(func(t *testing.T, head []byte, size int64) {
		if size < 0 || int64(len(head)) > size {
			return
		}
		if why := tableFault(head, size); why == "" && len(head) < 3*sector {
			t.Errorf("%d bytes hold no partition table", len(head))
		}
	})
}

// FuzzQcow2: a file from anywhere is read to its end or refused, within bounded memory.
func FuzzQcow2(f *testing.F) {
	raw := disk(1, 64<<10)
	_, _ = rand.NewChaCha8([32]byte{}).Read(raw[40<<10 : 48<<10]) // never fails
	for _, args := range [][]string{nil, {"-c"}, {"-c", "-o", "compression_type=zstd"}, {"-o", "cluster_size=512"},
		{"-c", "-o", "cluster_size=512"}} {
		f.Add(qemuImg(f, raw, args...))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		r := bytes.NewReader(file)
		if checkQcow2(r) != nil {
			return
		}
		img, err := qcow2.Open(r, onlyQcow2)
		if err != nil || img.Readable() != nil || img.Size() > 4<<20 {
			return
		}
		n, err := io.Copy(io.Discard, &faulty{r: faultyAt{img}, size: img.Size()})
		if err == nil && n != img.Size() {
			t.Errorf("%d bytes of %d without an error", n, img.Size())
		}
	})
}
