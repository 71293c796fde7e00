package metal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ingot-metal/ingot/agent/image"
	"github.com/ingot-metal/ingot/agent/image/bootdisk"
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// TinyRef is the name of the tiny image in the catalogue.
const TinyRef = "tiny"

// ImageFiles are what machines boot from, in one directory.
type ImageFiles struct {
	Dir string
	// Tiny is the smallest system there is: a kernel and the agent.
	Tiny bootdisk.Result
	// Installer has the kernel, the initramfs and the unified kernel image.
	Installer image.Manifest
}

const (
	tinyFile = "tiny.raw.zst"
	// installerCmdline is replaced by the boot server.
	installerCmdline = "ingot.role=installer panic=10 quiet"
)

// BuildImages makes installer and tiny image of an agent. The kernel is the host's own or a downloaded one.
func BuildImages(ctx context.Context, agent, cache, dir string) (ImageFiles, error) {
	files := ImageFiles{Dir: dir}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return files, err
	}
	kernel, err := image.FindKernel(ctx, cache)
	if err != nil {
		return files, err
	}
	files.Installer, err = image.Installer(ctx, image.InstallerConfig{
		Agent: agent, Kernel: kernel, Arch: "amd64", Cmdline: installerCmdline, Dir: dir,
	})
	if err != nil {
		return files, fmt.Errorf("build installer: %w", err)
	}
	files.Tiny, err = bootdisk.Tiny(ctx, bootdisk.TinyConfig{Agent: agent, Kernel: kernel, Out: filepath.Join(dir, tinyFile)})
	if err != nil {
		return files, fmt.Errorf("build tiny image: %w", err)
	}
	return files, nil
}

// AddImages puts them into the controller's catalogue.
func (l *Lab) AddImages(ctx context.Context, files ImageFiles) error {
	for _, part := range []struct{ kind, file string }{
		{"installer-kernel", image.KernelFile}, {"installer-initrd", image.InitrdFile}, {"installer-uki", image.UKIFile},
	} {
		err := l.client.Upload(ctx, filepath.Join(files.Dir, part.file), &pb.Image{
			ImageRef: part.kind, Kind: part.kind, Format: "raw", Arch: "amd64", Sha256File: files.Installer.Files[part.file].SHA256,
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

const pieceSize = 1 << 20

// Upload adds a file to the catalogue.
func (c *Client) Upload(ctx context.Context, path string, describe *pb.Image) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("upload image: %w", err)
	}
	defer f.Close() // only read
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the call when this returns early
	stream, err := c.Admin.UploadImage(ctx)
	if err != nil {
		return fmt.Errorf("upload image %s: %w", describe.GetImageRef(), err)
	}
	err = stream.Send(&pb.UploadImageRequest{Part: &pb.UploadImageRequest_Image{Image: describe}})
	for buf := make([]byte, pieceSize); err == nil; {
		var n int
		n, err = f.Read(buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("upload image %s: %w", describe.GetImageRef(), err)
		}
		err = stream.Send(&pb.UploadImageRequest{Part: &pb.UploadImageRequest_Data{Data: buf[:n]}})
	}
	// Whatever made sending fail is what the server answers.
	if _, err := stream.CloseAndRecv(); err != nil {
		return fmt.Errorf("upload image %s: %w", describe.GetImageRef(), err)
	}
	return nil
}
