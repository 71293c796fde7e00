package metal

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/ingot-metal/ingot/agent/site/cache"
	"github.com/ingot-metal/ingot/agent/site/httpboot"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/imagebuild/uki"
	"github.com/ingot-metal/ingot/internal/task"
)

const token = "bench"

// image is a unified kernel image whose kernel is noise of so many MiB.
func image(mib int) ([]byte, error) {
	noise := make([]byte, mib<<20)
	for i, x := 0, uint64(88172645463325252); i < len(noise); i++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		noise[i] = byte(x)
	}
	stub, err := os.ReadFile("/usr/lib/systemd/boot/efi/linuxx64.efi.stub")
	if err != nil {
		return nil, fmt.Errorf("read EFI stub (package systemd-boot-efi): %w", err)
	}
	return uki.Build(uki.Parts{Stub: stub, Linux: noise, Initrd: []byte("initrd"), Cmdline: "quiet"})
}

// store writes the image into a directory; its name is its digest.
func store(dir string, mib int) (path string, err error) {
	data, err := image(mib)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(data)
	path = filepath.Join(dir, hex.EncodeToString(sum[:]))
	return path, os.WriteFile(path, data, 0o600)
}

// HTTPVerb makes this program the server; ServeHTTP is what it runs then.
const HTTPVerb = "serve-http"

// ServeHTTP serves a file as the image of a site, with its cache in a directory. It prints its address, and ends with
// its standard input.
func ServeHTTP(ctx context.Context, file, dir string) error {
	digest := filepath.Base(file)
	log := slog.New(slog.DiscardHandler)
	blobs, err := cache.New(cache.Config{Dir: dir, Log: log, Source: source(file)})
	if err != nil {
		return err
	}
	s := httpboot.New(httpboot.Config{
		Segment: segment.Segment{Name: "bench", Interface: "lo", Address: netip.MustParsePrefix("127.0.0.1/8")},
		Blobs:   blobs.Open, Log: log, PerMachine: 4096,
	})
	s.Set(httpboot.View{
		Blobs:       []string{digest},
		Installers:  []httpboot.Installer{{Arch: "amd64", Kernel: digest, Initrd: digest, UKI: digest}},
		Assignments: []segment.Assignment{{MAC: segment.MAC{2}, MachineID: "m", Mode: segment.BootInstaller, Token: token}},
	})
	if err := s.Listen(ctx); err != nil {
		return err
	}
	fmt.Println(s.Base())
	ctx, cancel := context.WithCancel(ctx)
	group, _ := task.New(ctx)
	group.Go("serve", s.Run)
	group.Go("input", func(context.Context) error {
		defer cancel()
		_, _ = os.Stdin.Read(make([]byte, 1)) // returns an error at the end
		return nil
	})
	if err := group.Wait(); err != nil {
		return err
	}
	return blobs.Close()
}

// source sends the image as the controller would, in pieces.
func source(path string) cache.Source {
	return func(ctx context.Context, _ string, offset int64, to cache.Sink) (err error) {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if err := to.Begin(info.Size()); err != nil {
			return err
		}
		_, err = io.CopyBuffer(struct{ io.Writer }{to}, io.NewSectionReader(f, offset, info.Size()-offset),
			make([]byte, 64<<10))
		return errors.Join(err, context.Cause(ctx))
	}
}
