package metal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

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
