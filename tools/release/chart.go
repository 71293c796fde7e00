package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

var (
	// semantic is a version as Helm accepts it: https://semver.org.
	semantic = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	// chartVersion and appVersion are the lines of Chart.yaml that the release's version replaces.
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
	chartName    = regexp.MustCompile(`(?m)^name: ([a-z][a-z0-9-]*)$`)
)

// chart packs a chart as `helm package --version V --app-version V` does: NAME-V.tgz with all files below NAME/. Helm
// itself stamps each file with the time of packing.
func chart(args []string, _ io.Writer) error {
	f := flag.NewFlagSet("chart", flag.ContinueOnError)
	version := f.String("version", "", "version of the release, which the chart and its program take")
	epoch := f.Int64("epoch", 0, "the time of every file, in seconds since 1970")
	out := f.String("out", "", "directory to write to")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := required(f, "version", "out"); err != nil {
		return err
	}
	if f.NArg() != 1 || !semantic.MatchString(*version) {
		return fmt.Errorf("chart packs one directory, and --version %q is a semantic version", *version)
	}
	name, data, err := packChart(f.Arg(0), *version, time.Unix(*epoch, 0).UTC())
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*out, name+"-"+*version+".tgz"), data, 0o644)
}

func packChart(dir, version string, at time.Time) (name string, data []byte, err error) {
	about, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return "", nil, err
	}
	m := chartName.FindSubmatch(about)
	if m == nil || len(chartVersion.FindAll(about, -1)) != 1 || len(appVersion.FindAll(about, -1)) != 1 {
		return "", nil, errors.New("the Chart.yaml has no line of name, version or appVersion")
	}
	about = chartVersion.ReplaceAll(about, []byte("version: "+version))
	about = appVersion.ReplaceAll(about, []byte(`appVersion: "`+version+`"`))
	name = string(m[1])
	ignored, err := ignoredOf(dir)
	if err != nil {
		return "", nil, err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression) // no name and no time in its header
	if err != nil {
		return "", nil, err
	}
	t := tar.NewWriter(z)
	// WalkDir visits files in the order of their names.
	err = filepath.WalkDir(filepath.Clean(dir), func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && ignored(e.Name()):
			return filepath.SkipDir
		case e.IsDir() || ignored(e.Name()):
			return nil
		case !e.Type().IsRegular():
			return fmt.Errorf("%s is no file", path)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		inside := filepath.ToSlash(strings.TrimPrefix(path, filepath.Clean(dir)+string(filepath.Separator)))
		if inside == "Chart.yaml" {
			content = about
		}
		h := tar.Header{Name: name + "/" + inside, Mode: 0o644, Size: int64(len(content)), ModTime: at,
			Format: tar.FormatUSTAR}
		if err := t.WriteHeader(&h); err != nil {
			return err
		}
		_, err = t.Write(content)
		return err
	})
	if err = errors.Join(err, t.Close(), z.Close()); err != nil {
		return "", nil, err
	}
	return name, b.Bytes(), nil
}

// ignoredOf returns the function that reports whether .helmignore names a file. It reads patterns of names alone, which
// are what the chart has.
func ignoredOf(dir string) (func(name string) bool, error) {
	text, err := os.ReadFile(filepath.Join(dir, ".helmignore"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	patterns := strings.Fields(string(text))
	for _, p := range patterns {
		if _, err := filepath.Match(p, ""); err != nil || strings.ContainsAny(p, "/!#") {
			return nil, fmt.Errorf(".helmignore: %q is no pattern of a file's name", p)
		}
	}
	return func(name string) bool {
		for _, p := range patterns {
			if ok, err := filepath.Match(p, name); ok && err == nil {
				return true
			}
		}
		return false
	}, nil
}
