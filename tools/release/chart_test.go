package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const theChart = "../../deploy/helm/ingot"

// packedChart packs a copy of the chart whose files are of another time, and returns the archive.
func packedChart(t *testing.T, change func(dir string)) []byte {
	t.Helper()
	dir, out := filepath.Join(t.TempDir(), "elsewhere"), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(theChart)); err != nil {
		t.Fatal(err)
	}
	change(dir)
	err := run([]string{"chart", "--version", "1.2.3-rc.1", "--epoch", "1767225600", "--out", out, dir + "/"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(out, "ingot-1.2.3-rc.1.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestTheChart has every file of the tree's chart, below the chart's name as Helm wants it, and the release's version.
func TestTheChart(t *testing.T) {
	z, err := gzip.NewReader(bytes.NewReader(packedChart(t, func(string) {})))
	if err != nil {
		t.Fatal(err)
	}
	if z.Name != "" || !z.ModTime.IsZero() {
		t.Errorf("the header of gzip: %+v", z.Header)
	}
	var names []string
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || h.Uid != 0 || h.Uname != "" || h.Mode != 0o644 || !h.ModTime.Equal(time.Unix(1767225600, 0)) {
			t.Fatalf("%+v, %v", h, err)
		}
		got, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		inside, ok := strings.CutPrefix(h.Name, "ingot/")
		want, err := os.ReadFile(filepath.Join(theChart, inside))
		if err != nil || !ok {
			t.Fatalf("%s: %v", h.Name, err)
		}
		if inside == "Chart.yaml" {
			for _, line := range []string{"\nversion: 1.2.3-rc.1\n", "\nappVersion: \"1.2.3-rc.1\"\n", "\nkubeVersion: "} {
				if !bytes.Contains(got, []byte(line)) {
					t.Errorf("Chart.yaml has no line %q:\n%s", line, got)
				}
			}
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s has other bytes", inside)
		}
		names = append(names, inside)
	}
	var want []string
	for _, pattern := range []string{".helmignore", "*", "templates/*"} {
		found, err := filepath.Glob(filepath.Join(theChart, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && !info.IsDir() {
				want = append(want, strings.TrimPrefix(path, theChart+"/"))
			}
		}
	}
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(names, want) {
		t.Errorf("it has %v, want %v", names, want)
	}
}

// TestTheChartHasTheSameBytes wherever it lies, whenever its files were written, and with an editor's file beside them.
func TestTheChartHasTheSameBytes(t *testing.T) {
	first := packedChart(t, func(string) {})
	again := packedChart(t, func(dir string) {
		write(t, filepath.Join(dir, "templates", ".service.yaml.swp"), "half")
		for _, name := range []string{"Chart.yaml", "templates/service.yaml"} {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.Chmod(path, 0o600), os.Chtimes(path, time.Time{}, time.Unix(1, 0))); err != nil {
				t.Fatal(err)
			}
		}
	})
	if !bytes.Equal(first, again) {
		t.Error("the chart is another one the second time")
	}
	if bytes.Equal(first, packedChart(t, func(dir string) { write(t, filepath.Join(dir, "values.yaml"), "a: 1") })) {
		t.Error("other values give the same bytes")
	}
}

// TestChartRefuses what Helm would not read, or not pack as this does.
func TestChartRefuses(t *testing.T) {
	out, dir := t.TempDir(), t.TempDir()
	pack := func(version, about, ignore string) error {
		write(t, filepath.Join(dir, "Chart.yaml"), about)
		write(t, filepath.Join(dir, ".helmignore"), ignore)
		return run([]string{"chart", "--version", version, "--out", out, dir}, io.Discard)
	}
	const good = "name: x\nversion: 0.1.0\nappVersion: x\n"
	if err := pack("1.2.3", good, "*.swp"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"a version of two parts": pack("1.2", good, ""), "no appVersion": pack("1.2.3", "name: x\nversion: 1\n", ""),
		"no name": pack("1.2.3", "version: 1\nappVersion: 1\n", ""), "a pattern of paths": pack("1.2.3", good, "a/b"),
	} {
		if err == nil {
			t.Errorf("%s: packed", what)
		}
	}
}
