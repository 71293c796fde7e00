package inventory

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestImageDigestIsWhatTheInstallerLeft(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	path := filepath.Join(root, ImageFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	collect := func() Document { return Collect(Config{Root: root}) }
	if doc := collect(); doc.OS.ImageDigest != "" || strings.Contains(strings.Join(doc.Missing, "\n"), "image:") {
		t.Errorf("without a file: %q, missing %q", doc.OS.ImageDigest, doc.Missing)
	}
	for text, want := range map[string]string{
		`{"image_ref":"debian-12","digest":"sha256:ab","operation_id":"op-1"}`: "sha256:ab",
		`{"image_ref":"debian-12"}`: "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if doc := collect(); doc.OS.ImageDigest != want {
			t.Errorf("%s: %q", text, doc.OS.ImageDigest)
		}
	}
	if err := os.WriteFile(path, []byte("half of a fi"), 0o600); err != nil {
		t.Fatal(err)
	}
	if doc := collect(); doc.OS.ImageDigest != "" || !strings.Contains(strings.Join(doc.Missing, "\n"), "image: ") {
		t.Errorf("with rubbish: %q, missing %q", doc.OS.ImageDigest, doc.Missing)
	}
}
