package zstream_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/ingot-metal/ingot/internal/zstream"
)

// by compresses with the zstd program (Debian package zstd): from a pipe, or a file, whose length it knows.
func by(t *testing.T, raw []byte, known bool, args ...string) []byte {
	t.Helper()
	args = append(args, "-q", "-c")
	cmd := exec.CommandContext(t.Context(), "zstd", args...)
	cmd.Stdin = bytes.NewReader(raw)
	if known {
		file := filepath.Join(t.TempDir(), "raw")
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd = exec.CommandContext(t.Context(), "zstd", append(args, file)...)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("zstd %v: %v", args, err)
	}
	return out
}

// TestEveryFrameHasItsWindow holds what the zstd program makes: a window that is too large is named in whichever frame
// it stands, after all that stands before it.
func TestEveryFrameHasItsWindow(t *testing.T) {
	t.Parallel()
	raw := make([]byte, zstream.MaxWindow+8<<20)
	for i := range raw {
		raw[i] = byte(i >> 12)
	}
	small := by(t, raw[:1<<20], false, "-1")
	piped, known := by(t, raw, false, "-1", "--long=27"), by(t, raw, true, "-1", "--long=27")
	for name, c := range map[string]struct {
		file []byte
		want int // bytes
		long bool
	}{
		"small":               {small, 1 << 20, false},
		"level 19":            {by(t, raw, true, "-19"), len(raw), false},
		"long=25":             {by(t, raw, false, "-1", "--long=25"), len(raw), false},
		"many frames":         {slices.Concat(small, small, small), 3 << 20, false},
		"first, piped":        {piped, 0, true},
		"first, of a length":  {known, 0, true},
		"second, piped":       {slices.Concat(small, piped), 1 << 20, true},
		"second, of a length": {slices.Concat(small, known), 1 << 20, true},
		"last of many":        {slices.Concat(small, small, piped, small), 2 << 20, true},
	} {
		for _, at := range []int{0, 1, 4} {
			r, err := zstream.NewReader(bytes.NewReader(c.file), zstd.WithDecoderConcurrency(at))
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, r)
			if errors.Is(err, zstream.ErrWindow) != c.long || !c.long && err != nil || n != int64(c.want) {
				t.Errorf("%s, concurrency %d: %d bytes, want %d: %v", name, at, n, c.want, err)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
