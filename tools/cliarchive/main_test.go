package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const epoch = 1767225600

// packed packs programs of three systems and returns the files that come of it.
func packed(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	args := []string{
		"--version",
		"1.2.3",
		"--epoch",
		fmt.Sprint(epoch),
		"--license",
		filepath.Join(dir, "LICENSE"),
		"--share",
		filepath.Join(dir, "share"),
		"--out",
		filepath.Join(dir, "out"),
	}
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(content), 0o600),
		); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("LICENSE", "Apache-2.0")
	write("share/man/man1/ingot.1ingot", ".TH")
	write("share/fish/ingot.fish", "complete")
	for _, name := range []string{"windows-arm64/ingot.exe", "linux-amd64/ingot", "darwin-arm64/ingot"} {
		args = append(args, write(name, strings.Repeat("the program of "+name, 1000)))
	}
	if err := run(args); err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	entries, err := os.ReadDir(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if out[e.Name()], err = os.ReadFile(filepath.Join(dir, "out", e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// TestArchives checks the contents of each archive: the executable program, the license, and the manual pages and
// completions, which Windows does without. All have the given time, and the archives their sums.
func TestArchives(t *testing.T) {
	out := packed(t)
	var sums strings.Builder
	for _, name := range []string{"ingot_1.2.3_darwin_arm64.tar.gz", "ingot_1.2.3_linux_amd64.tar.gz",
		"ingot_1.2.3_windows_arm64.zip"} {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(out[name]), name)
	}
	if string(out["SHA256SUMS"]) != sums.String() || len(out) != 4 {
		t.Errorf("%s\nwant\n%s", out["SHA256SUMS"], sums.String())
	}
	z, err := gzip.NewReader(bytes.NewReader(out["ingot_1.2.3_darwin_arm64.tar.gz"]))
	if err != nil {
		t.Fatal(err)
	}
	for r, want := tar.NewReader(z), []string{"LICENSE 644", "ingot 755",
		"share/fish/ingot.fish 644", "share/man/man1/ingot.1ingot 644"}; ; want = want[1:] {
		h, err := r.Next()
		if errors.Is(err, io.EOF) && len(want) == 0 {
			break
		}
		if err != nil || fmt.Sprintf("%s %o", h.Name, h.Mode) != "ingot_1.2.3_darwin_arm64/"+want[0] || h.Uid != 0 ||
			h.Uname != "" ||
			!h.ModTime.Equal(time.Unix(epoch, 0)) {
			t.Fatalf("%+v, %v, want %v", h, err, want)
		}
	}
	zipped := out["ingot_1.2.3_windows_arm64.zip"]
	w, err := zip.NewReader(bytes.NewReader(zipped), int64(len(zipped)))
	if err != nil || len(w.File) != 2 || w.File[1].Name != "ingot_1.2.3_windows_arm64/ingot.exe" ||
		!w.File[1].Modified.Equal(time.Unix(epoch, 0)) || w.File[1].Mode() != 0o755 {
		t.Fatalf("%v, %v", w, err)
	}
	r, err := w.File[1].Open()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(r); err != nil || !strings.HasPrefix(string(text), "the program of windows-arm64") {
		t.Errorf("%.40s, %v", text, err)
	}
}

// TestTheSameFilesGiveTheSameBytes, wherever they lie, whenever they were written and whatever the time zone is.
func TestTheSameFilesGiveTheSameBytes(t *testing.T) {
	first := packed(t)
	zone := time.Local
	time.Local = time.FixedZone("there", 5*3600)
	t.Cleanup(func() { time.Local = zone })
	for name, again := range packed(t) {
		if !bytes.Equal(first[name], again) {
			t.Errorf("%s is another one the second time", name)
		}
	}
}

// TestWhatIsNotPacked: a program of no named system, and a version that cannot be a part of a name.
func TestWhatIsNotPacked(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "ingot")
	if err := errors.Join(
		os.WriteFile(program, nil, 0o600),
		os.WriteFile(filepath.Join(dir, "LICENSE"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--version", "1", "--out", dir}, {"--version", "1", program}, {"--version", "1", "--out", dir, program},
		{"--version", "1/2", "--out", dir, program}, {"--version", "1", "--out", dir, filepath.Join(dir, "no", "such")},
	} {
		if err := run(append([]string{"--license", filepath.Join(dir, "LICENSE")}, args...)); err == nil {
			t.Errorf("%v was packed", args)
		}
	}
}
