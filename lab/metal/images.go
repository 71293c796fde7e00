package metal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/imagebuild"
	"github.com/ingot-metal/ingot/imagebuild/bootdisk"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/debian"
)

// TinyRef is the name of the tiny image in the catalogue.
const TinyRef = "tiny"

// ImageFiles are what machines boot from, in one directory.
type ImageFiles struct {
	Dir string `json:"-"`
	// Tiny is the smallest system there is: a kernel and the agent.
	Tiny bootdisk.Result
	// Installer has the kernel, the initramfs and the unified kernel image.
	Installer imagebuild.Manifest
}

const (
	tinyFile = "tiny.raw.zst"
	// installerCmdline is replaced by the boot server.
	installerCmdline = "ingot.role=installer panic=10 quiet no_timer_check"
	// consoleCmdline shows installers on the serial port. The emulation's timer may be late; it is trusted all the same.
	consoleCmdline = "console=ttyS0 panic=10 quiet edd=off no_timer_check"
	tinyCmdline    = "console=ttyS0,115200n8 panic=10 quiet edd=off ingot.net=dhcp no_timer_check"
)

// BuildImages makes installer and tiny image with the programs ingot-image and ingot-agent, unless the cache has what
// the same programs made of the same kernel. The kernel is the host's own or a downloaded one, which is cached too.
func BuildImages(ctx context.Context, builder, agent, cache string) (ImageFiles, error) {
	kernel, err := debian.FindKernel(ctx, cache)
	if err != nil {
		return ImageFiles{}, err
	}
	key, err := keyOf(builder, agent, kernel)
	if err != nil {
		return ImageFiles{}, err
	}
	root := filepath.Join(cache, "images")
	dir := filepath.Join(root, key)
	if files, err := cached(dir); err == nil {
		return files, nil
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return ImageFiles{}, err
	}
	scratch, err := os.MkdirTemp(root, "build-*")
	if err != nil {
		return ImageFiles{}, err
	}
	err = errors.Join(build(ctx, builder, agent, kernel, scratch), os.Chmod(scratch, 0o755))
	if err == nil && os.Rename(scratch, dir) != nil {
		// Another process was quicker; its files are the same.
		err = os.RemoveAll(scratch)
	}
	if err != nil {
		return ImageFiles{}, errors.Join(err, os.RemoveAll(scratch))
	}
	removeOld(root, key)
	return cached(dir)
}

// keyOf changes with everything that the images are made of.
func keyOf(builder, agent string, kernel debian.Kernel) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, kernel.Release, installerCmdline, tinyCmdline)
	for _, path := range []string{builder, agent} {
		f, err := os.Open(path)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:8]), nil
}

// recordFile comes last: a directory that has it is complete.
const recordFile = "images.json"

func cached(dir string) (ImageFiles, error) {
	files := ImageFiles{Dir: dir}
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err != nil {
		return files, err
	}
	return files, json.Unmarshal(data, &files)
}

func build(ctx context.Context, builder, agent string, kernel debian.Kernel, dir string) error {
	var files ImageFiles
	run := func(into any, args ...string) error {
		args = append(args, "--agent-binary", agent, "--kernel", kernel.Image, "--modules-dir", kernel.ModulesDir, "--output",
			"json")
		out, err := exec.CommandContext(ctx, builder, args...).Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			return fmt.Errorf("build %s: %w: %s", args[0], err, exit.Stderr)
		}
		return errors.Join(err, json.Unmarshal(out, into))
	}
	err := errors.Join(
		run(&files.Installer, "installer", "--out", dir, "--cmdline", installerCmdline),
		run(&files.Tiny, "tiny", "--out", filepath.Join(dir, tinyFile), "--cmdline", tinyCmdline),
	)
	if err != nil {
		return err
	}
	record, err := json.Marshal(files)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, recordFile), record, 0o644)
}

// keepImages is how long images of another agent stay: they may be in use.
const keepImages = time.Hour

func removeOld(root, except string) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return // the next one to build tries again
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && e.Name() != except && clock.Real().Now().Sub(info.ModTime()) > keepImages {
			_ = os.RemoveAll(filepath.Join(root, e.Name())) // likewise
		}
	}
}

// AddImages puts them into the controller's catalogue.
func (l *Lab) AddImages(ctx context.Context, files ImageFiles) error {
	for _, part := range []struct{ kind, file string }{
		{"installer-kernel", imagebuild.KernelFile}, {"installer-initrd", imagebuild.InitrdFile},
		{"installer-uki", imagebuild.UKIFile},
	} {
		err := l.client.Upload(ctx, filepath.Join(files.Dir, part.file), &pb.Image{
			ImageRef: part.kind, Kind: part.kind, Format: "raw", Arch: "amd64",
			Sha256File: files.Installer.Files[part.file].SHA256,
		})
		if err != nil {
			return err
		}
	}
	return l.client.Upload(ctx, filepath.Join(files.Dir, tinyFile), TinyImage(files))
}

// TinyImage describes the tiny image to the catalogue.
func TinyImage(files ImageFiles) *pb.Image {
	return &pb.Image{
		ImageRef: TinyRef, Format: files.Tiny.Format, Sha256File: files.Tiny.SHA256File, Sha256Raw: files.Tiny.SHA256Raw,
		SizeBytes: files.Tiny.SizeRaw,
	}
}
