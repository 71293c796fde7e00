package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
)

// uploadChunk is how much of a file one message carries.
const uploadChunk = 256 << 10

// addImage has the server fetch a URL, or sends it a file.
func (a *app) addImage(ctx context.Context, im *pb.Image, from string) error {
	svc, err := a.services()
	if err != nil {
		return err
	}
	var added *pb.Image
	if strings.HasPrefix(from, "http://") || strings.HasPrefix(from, "https://") {
		im.Url = from
		a.note("The server fetches the image; this takes as long as it takes.")
		added, err = svc.admin.AddImage(ctx, &pb.AddImageRequest{Image: im})
	} else {
		added, err = a.uploadFrom(ctx, svc, im, from)
	}
	if err != nil {
		return err
	}
	return a.printImage(added)
}

func (a *app) uploadFrom(ctx context.Context, svc *services, im *pb.Image, path string) (*pb.Image, error) {
	if path == "-" {
		return a.upload(ctx, svc, im, a.cfg.In)
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
func (a *app) describe(im *pb.Image, f *os.File) error {
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
		return invalidf("%s has the SHA-256 %s, not the one that --sha256 gives", f.Name(), digest)
	}
	im.Sha256Source = digest
	return nil
}

func (a *app) upload(ctx context.Context, svc *services, im *pb.Image, r io.Reader) (*pb.Image, error) {
	stream, err := svc.admin.UploadImage(ctx)
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
	// io.EOF is either file's end, or says that the server has answered before; both answers come now.
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("send image: %w", err)
	}
	return stream.CloseAndRecv()
}

// bar shows how far a transfer is, to people at a terminal.
type bar struct {
	a     *app
	scr   *screen
	what  string
	total int64
	done  int64
	began time.Time
	drawn time.Time
}

// redraw is how often the bar moves.
const redraw = 100 * time.Millisecond

func (a *app) newBar(what string, total int64) *bar {
	b := &bar{a: a, what: what, total: total, began: a.now()}
	if a.cfg.ErrTerminal {
		b.scr = &screen{out: a.cfg.Err}
	}
	return b
}

func (b *bar) Write(p []byte) (int, error) {
	b.done += int64(len(p))
	if now := b.a.now(); b.scr != nil && now.Sub(b.drawn) >= redraw {
		b.drawn = now
		b.scr.put("", view.Transfer(b.what, b.done, b.total, now.Sub(b.began)))
	}
	return len(p), nil
}

func (b *bar) end() {
	if b.scr != nil {
		b.scr.put("", "")
	}
}
