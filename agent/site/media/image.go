package media

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ingot-metal/ingot/agent/site/cdimage"
	"github.com/ingot-metal/ingot/internal/uki"
)

// Blob is a file of the installer that is complete. Each is read by one request.
type Blob interface {
	io.ReadSeekCloser
	Size() int64
	// Wait returns when all of it is there.
	Wait(ctx context.Context) error
}

// Where Debian's packages isolinux and syslinux-common have the program that a BIOS loads.
const (
	loaderProgram = "/usr/lib/ISOLINUX/isolinux.bin"
	loaderModule  = "/usr/lib/syslinux/modules/bios/ldlinux.c32"
)

// LoaderFiles are what images need beside the installer, to start BIOS machines.
var LoaderFiles = []string{loaderProgram, loaderModule}

// findLoader returns nil where the packages are not there: images start by UEFI alone then.
func findLoader() (*cdimage.Loader, error) {
	program, err := os.ReadFile(loaderProgram)
	if err == nil {
		var module []byte
		if module, err = os.ReadFile(loaderModule); err == nil {
			return &cdimage.Loader{Program: program, Module: module}, nil
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return nil, fmt.Errorf("read the boot loader for BIOS machines: %w", err)
}

// image is one that is open. Close must be called.
type image struct {
	*cdimage.Image
	blobs []Blob
}

// Close lets go of the files.
func (i *image) Close() error {
	var errs []error
	for _, b := range i.blobs {
		errs = append(errs, b.Close())
	}
	return errors.Join(errs...)
}

// open lays the image out.
func (s *Server) open(ctx context.Context, b Boot) (_ *image, err error) {
	out := &image{}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.Close())
		}
	}()
	more, err := b.archive()
	if err != nil {
		return nil, err
	}
	cfg := cdimage.Config{Arch: b.Files.Arch, More: more, Cmdline: b.params()}
	if b.Files.UKI != "" {
		if cfg.EFI, err = out.efi(ctx, s.cfg.Open, b, more); err != nil {
			return nil, err
		}
	}
	if s.loader != nil && b.Files.Arch == "amd64" {
		cfg.Loader = s.loader
		if cfg.Kernel, err = out.blob(ctx, s.cfg.Open, b.Files.Kernel); err != nil {
			return nil, err
		}
		if cfg.Initrd, err = out.blob(ctx, s.cfg.Open, b.Files.Initrd); err != nil {
			return nil, err
		}
	}
	out.Image, err = cdimage.New(cfg)
	return out, err
}

// Open returns a file of the installer.
type Open func(ctx context.Context, sha256 string) (Blob, error)

func (i *image) blob(ctx context.Context, open Open, digest string) (cdimage.Part, error) {
	b, err := open(ctx, digest)
	if err != nil {
		return cdimage.Part{}, err
	}
	i.blobs = append(i.blobs, b)
	if err := b.Wait(ctx); err != nil {
		return cdimage.Part{}, err
	}
	return cdimage.Part{From: readerAt{b}, Size: b.Size()}, nil
}

// efi is the unified kernel image with the machine's own parameters behind its own, and its file in the initramfs.
func (i *image) efi(ctx context.Context, open Open, b Boot, more []byte) ([]cdimage.Part, error) {
	whole, err := i.blob(ctx, open, b.Files.UKI)
	if err != nil {
		return nil, err
	}
	span, err := uki.Cmdline(whole.From)
	if err != nil {
		return nil, err
	}
	own := make([]byte, span.Size)
	if _, err := whole.From.ReadAt(own, span.Offset); err != nil {
		return nil, fmt.Errorf("read command line of image: %w", err)
	}
	cmdline := strings.Join(append(strings.Fields(strings.Trim(string(own), "\x00")), b.params()), " ")
	pieces, err := uki.Extend(whole.From, whole.Size, uki.Extension{Cmdline: cmdline, Initrd: more})
	if err != nil {
		return nil, err
	}
	var out []cdimage.Part
	for _, p := range pieces {
		part := cdimage.Part{Data: p.Data}
		if p.Data == nil {
			part = cdimage.Part{From: whole.From, Offset: p.Offset, Size: p.Size}
		}
		out = append(out, part)
	}
	return out, nil
}

// readerAt reads a blob for one user at a time.
type readerAt struct{ b Blob }

// ReadAt implements io.ReaderAt.
func (r readerAt) ReadAt(p []byte, off int64) (int, error) {
	if _, err := r.b.Seek(off, io.SeekStart); err != nil {
		return 0, err
	}
	n, err := io.ReadFull(r.b, p)
	if err == io.ErrUnexpectedEOF { //nolint:errorlint // io.ReadFull gives exactly this
		err = io.EOF
	}
	return n, err
}
