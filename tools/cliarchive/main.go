// Command cliarchive packs programs that were built for one system each: a tar.gz, or a zip for Windows, and the
// SHA-256 of all of them.
//
//	cliarchive --version V --epoch SECONDS --license FILE --share DIR --out DIR DIR/GOOS-GOARCH/ingot[.exe]…
//
// The files below --share, manual pages and completions, are added where a system has manual pages.
//
// The same files and flags give the same bytes.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cliarchive:", err)
		os.Exit(1)
	}
}

// file is a file of an archive.
type file struct {
	name    string
	mode    int64
	content []byte
}

func run(args []string) error {
	f := flag.NewFlagSet("cliarchive", flag.ContinueOnError)
	version := f.String("version", "", "version of the programs")
	epoch := f.Int64("epoch", 0, "the time of every file, in seconds since 1970")
	license := f.String("license", "LICENSE", "text of the license")
	share := f.String("share", "", "directory of files that archives have as share")
	out := f.String("out", "", "directory to write to")
	if err := f.Parse(args); err != nil {
		return err
	}
	if *out == "" || f.NArg() == 0 {
		return errors.New("--out and programs are required")
	}
	text, err := os.ReadFile(*license)
	if err != nil {
		return err
	}
	shared, err := filesBelow(*share)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	var sums []string
	for _, path := range f.Args() {
		program, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files := []file{{"LICENSE", 0o644, text}, {filepath.Base(path), 0o755, program}}
		if !strings.HasSuffix(path, ".exe") {
			files = append(files, shared...)
		}
		name, data, err := archive(path, *version, time.Unix(*epoch, 0).UTC(), files...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(*out, name), data, 0o644); err != nil {
			return err
		}
		sums = append(sums, fmt.Sprintf("%x  %s\n", sha256.Sum256(data), name))
	}
	slices.SortFunc(sums, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return os.WriteFile(filepath.Join(*out, "SHA256SUMS"), []byte(strings.Join(sums, "")), 0o644)
}

// filesBelow reads the files of a directory, in the order of their names, as they are named in an archive.
func filesBelow(dir string) (out []file, err error) {
	if dir == "" {
		return nil, nil
	}
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		out = append(out, file{"share/" + filepath.ToSlash(name), 0o644, content})
		return err
	})
	return out, err
}

var (
	system    = regexp.MustCompile(`^([a-z]+)-([a-z0-9]+)$`)
	goodInAny = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+~-]*$`)
)

// archive packs files under a directory of their own. The system is that of the program's directory.
func archive(program, version string, at time.Time, files ...file) (name string, data []byte, err error) {
	of := system.FindStringSubmatch(filepath.Base(filepath.Dir(program)))
	switch {
	case of == nil:
		return "", nil, fmt.Errorf("%s: its directory is not called GOOS-GOARCH", program)
	case !goodInAny.MatchString(version):
		return "", nil, fmt.Errorf("--version %q: letters, digits, and . + ~ -", version)
	}
	dir := "ingot_" + version + "_" + of[1] + "_" + of[2]
	var b bytes.Buffer
	if of[1] == "windows" {
		err = writeZip(&b, dir, at, files)
		return dir + ".zip", b.Bytes(), err
	}
	err = writeTar(&b, dir, at, files)
	return dir + ".tar.gz", b.Bytes(), err
}

func writeTar(b *bytes.Buffer, dir string, at time.Time, files []file) error {
	z, err := gzip.NewWriterLevel(b, gzip.BestCompression) // no name and no time in its header
	if err != nil {
		return err
	}
	t := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: dir + "/" + f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: at,
			Format: tar.FormatUSTAR}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func writeZip(b *bytes.Buffer, dir string, at time.Time, files []file) error {
	z := zip.NewWriter(b)
	for _, f := range files {
		h := &zip.FileHeader{Name: dir + "/" + f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(os.FileMode(f.mode))
		w, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := w.Write(f.content); err != nil {
			return err
		}
	}
	return z.Close()
}
