package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/rpmpack"
)

// rpm packs the tree of a Debian package, with the scripts NAME.post, NAME.preun and NAME.postun of a directory.
func rpm(args []string, _ io.Writer) error {
	f := flag.NewFlagSet("rpm", flag.ContinueOnError)
	name := f.String("name", "", "name of the package")
	version := f.String("version", "", "version, where ~ sorts before the end")
	arch := f.String("arch", "", "architecture in Debian's name")
	summary := f.String("summary", "", "what it is, in one line")
	description := f.String("description", "", "what it is")
	epoch := f.Int64("epoch", 0, "the time of every file, in seconds since 1970")
	scripts := f.String("scripts", "", "directory of scripts")
	out := f.String("out", "", "file to write")
	var requires, recommends rpmpack.Relations
	f.Var(&requires, "requires", "package that it needs")
	f.Var(&recommends, "recommends", "package that it goes with")
	if err := f.Parse(args); err != nil {
		return err
	}
	if err := required(f, "name", "version", "arch", "summary", "description", "out"); err != nil {
		return err
	}
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[*arch]
	if f.NArg() != 1 || machine == "" || strings.Contains(*version, "-") {
		return errors.New("rpm packs one tree, for amd64 or arm64, and its version has no dash")
	}
	p, err := rpmpack.NewRPM(rpmpack.RPMMetaData{
		Name: *name, Summary: *summary, Description: *description, Version: *version, Release: "1", Arch: machine,
		URL: repository, Packager: "The Ingot authors", Licence: "Apache-2.0", BuildHost: "localhost",
		// One that every rpm reads, and that has the same bytes on any number of processors.
		Compressor: "gzip:9", Epoch: rpmpack.NoEpoch, BuildTime: time.Unix(*epoch, 0),
		Requires: requires, Recommends: recommends,
	})
	if err != nil {
		return err
	}
	if err := addTree(
		p,
		strings.TrimSuffix(f.Arg(0), "/"),
		uint32(*epoch),
	); err != nil { //nolint:gosec // G115: until 2106
		return err
	}
	if err := addScripts(p, *scripts, *name); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		return err
	}
	return os.WriteFile(*out, b.Bytes(), 0o644)
}

// elsewhere maps folders of Debian to those of Fedora and RHEL.
var elsewhere = strings.NewReplacer(
	"/lib/systemd/system/", "/usr/lib/systemd/system/",
	"/usr/share/zsh/vendor-completions/", "/usr/share/zsh/site-functions/",
)

// ours are folders that belong to a package with all in them; others are shared.
var ours = []string{"/etc/ingot", "/usr/share/ingot", "/usr/share/doc/"}

// addTree adds what a tree installs. What dpkg keeps when it was changed, rpm keeps.
func addTree(p *rpmpack.RPM, tree string, at uint32) error {
	list, err := os.ReadFile(filepath.Join(tree, "DEBIAN/conffiles"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	kept := strings.Fields(string(list))
	return filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := strings.TrimPrefix(path, tree)
		if target == "/DEBIAN" {
			return filepath.SkipDir
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		f := rpmpack.RPMFile{Name: target, Mode: uint(info.Mode().Perm()), Owner: "root", Group: "root", MTime: at}
		if !strings.HasPrefix(f.Name, "/usr/lib/") {
			f.Name = elsewhere.Replace(f.Name)
		}
		switch {
		case e.IsDir():
			if !slices.ContainsFunc(ours, func(dir string) bool { return strings.HasPrefix(target, dir) }) {
				return nil
			}
			f.Mode |= 0o40000
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			f.Mode, f.Body = 0o120777, []byte(to)
		default:
			if f.Body, err = os.ReadFile(path); err != nil {
				return err
			}
			f.Type = typeOf(target, kept)
		}
		p.AddFile(f)
		return nil
	})
}

func typeOf(target string, kept []string) rpmpack.FileType {
	switch {
	case slices.Contains(kept, target):
		return rpmpack.ConfigFile | rpmpack.NoReplaceFile
	case strings.HasPrefix(target, "/usr/share/doc/"), strings.HasPrefix(target, "/usr/share/man/"):
		return rpmpack.DocFile
	}
	return rpmpack.GenericFile
}

func addScripts(p *rpmpack.RPM, dir, name string) error {
	scripted := false
	for suffix, add := range map[string]func(string){"post": p.AddPostin, "preun": p.AddPreun, "postun": p.AddPostun} {
		text, err := os.ReadFile(filepath.Join(dir, name+"."+suffix))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		add(string(text))
		scripted = true
	}
	if scripted {
		if err := p.Requires.Set("/bin/sh"); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
