package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
)

// uploadChunk is how much of a file one message carries.
const uploadChunk = 256 << 10

// addImage has the server fetch a URL, or sends it a file.
func (a commands) addImage(ctx context.Context, im *pb.Image, from string) error {
	svc := a.app.Services()
	var added *pb.Image
	var err error
	if scheme, _, ok := strings.Cut(from, "://"); ok && slices.Contains([]string{"http", "https", "oci"}, scheme) {
		im.Url = from
		a.app.Note("The server fetches the image; this takes as long as it takes.")
		added, err = svc.Admin.AddImage(ctx, &pb.AddImageRequest{Image: im})
	} else {
		added, err = a.uploadFrom(ctx, svc, im, from)
	}
	if err != nil {
		return err
	}
	return a.printImage(added)
}

func (a commands) uploadFrom(ctx context.Context, svc *command.Services, im *pb.Image, path string) (*pb.Image, error) {
	if path == "-" {
		return a.upload(ctx, svc, im, a.app.Config.In)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open image: %w", err)
	}
	defer f.Close() //nolint:errcheck // opened for reading
	if err := a.describe(im, f); err != nil {
		return nil, err
	}
	return a.upload(ctx, svc, im, f)
}

// describe reads the file once, for its size and digest: a server that has it already does not ask for it again.
func (a commands) describe(im *pb.Image, f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at image: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	sum := sha256.New()
	bar := a.newBar("reading", info.Size())
	n, err := io.Copy(io.MultiWriter(sum, bar), f)
	bar.end()
	if err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read image: %w", err)
	}
	im.FileSizeBytes = n
	digest := hex.EncodeToString(sum.Sum(nil))
	if im.GetSha256Source() != "" && !strings.EqualFold(im.GetSha256Source(), digest) {
		return command.Invalidf("%s has the SHA-256 %s, not the one that --sha256 gives", f.Name(), digest)
	}
	im.Sha256Source = digest
	return nil
}

func (a commands) upload(ctx context.Context, svc *command.Services, im *pb.Image, r io.Reader) (*pb.Image, error) {
	stream, err := svc.Admin.UploadImage(ctx)
	if err != nil {
		return nil, err
	}
	bar := a.newBar("sending", im.GetFileSizeBytes())
	err = stream.Send(&pb.UploadImageRequest{Part: &pb.UploadImageRequest_Image{Image: im}})
	buf := make([]byte, uploadChunk)
	for err == nil {
		var n int
		n, err = io.ReadFull(r, buf)
		if n > 0 {
			// The message is serialized when Send returns: the buffer can be used again.
			if serr := stream.Send(&pb.UploadImageRequest{Part: &pb.UploadImageRequest_Data{Data: buf[:n]}}); serr != nil {
				err = serr
				break
			}
			_, _ = bar.Write(buf[:n]) // never fails
		}
	}
	bar.end()
	// io.EOF is the end of the file, or an earlier answer of the server; both answers come now.
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("send image: %w", err)
	}
	return stream.CloseAndRecv()
}

// bar shows how far a transfer is, to people at a terminal.
type bar struct {
	a     commands
	scr   *command.Screen
	what  string
	total int64
	done  int64
	began time.Time
	drawn time.Time
}

// redraw is how often the bar moves.
const redraw = 100 * time.Millisecond

func (a commands) newBar(what string, total int64) *bar {
	b := &bar{a: a, what: what, total: total, began: a.app.Now()}
	if a.app.Config.ErrTerminal {
		b.scr = &command.Screen{Out: a.app.Config.Err}
	}
	return b
}

func (b *bar) Write(p []byte) (int, error) {
	b.done += int64(len(p))
	if now := b.a.app.Now(); b.scr != nil && now.Sub(b.drawn) >= redraw {
		b.drawn = now
		b.scr.Put("", view.Transfer(b.what, b.done, b.total, now.Sub(b.began)))
	}
	return len(p), nil
}

func (b *bar) end() {
	if b.scr != nil {
		b.scr.Put("", "")
	}
}
