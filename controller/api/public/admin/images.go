package admin

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

// AddImage implements AdminService.
func (s *Server) AddImage(ctx context.Context, r *baremetalv1.AddImageRequest) (*baremetalv1.Image, error) {
	im, err := validate.NewImage("image", r.GetImage(), false)
	if err != nil {
		return nil, err
	}
	return s.Config.Images.Add(ctx, im, service.Actor(ctx))
}

type uploadStream = grpc.ClientStreamingServer[baremetalv1.UploadImageRequest, baremetalv1.Image]

// UploadImage implements AdminService.
func (s *Server) UploadImage(stream uploadStream) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return validate.Fault("image", "the first message must hold the description")
	}
	if err != nil {
		return err
	}
	im, err := validate.NewImage("image", first.GetImage(), true)
	if err != nil {
		return err
	}
	ctx, done := s.Streaming(stream.Context())
	added, err := s.Config.Images.Upload(ctx, im, s.receive(ctx, stream), service.Actor(ctx))
	if err = done(err); err != nil {
		return err
	}
	return stream.SendAndClose(added)
}

// upload reads the data of the messages that follow the first. gRPC's Recv cannot be given a deadline; it ends when its
// handler has returned, and with it the goroutine of receive.
type upload struct {
	ctx   context.Context
	next  <-chan received
	clock clock.Clock
	limit time.Duration
	rest  []byte
}

type received struct {
	data []byte
	err  error
}

func (s *Server) receive(ctx context.Context, stream uploadStream) *upload {
	next := make(chan received)
	task.Background("receive an upload", func() {
		for {
			m, err := stream.Recv()
			if err == nil && m.GetImage() != nil {
				err = validate.Fault("image", "only the first message holds a description")
			}
			select {
			case next <- received{m.GetData(), err}:
			case <-stream.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	return &upload{ctx: ctx, next: next, clock: s.Clock, limit: s.Config.SendTimeout}
}

// Read implements io.Reader.
func (u *upload) Read(p []byte) (int, error) {
	for len(u.rest) == 0 {
		select {
		case r := <-u.next:
			if r.err != nil {
				return 0, r.err
			}
			u.rest = r.data
		case <-u.ctx.Done():
			return 0, context.Cause(u.ctx)
		case <-u.clock.After(u.limit):
			return 0, failure.Precondition("IMAGE_UNAVAILABLE", "no data has come for %v", u.limit)
		}
	}
	n := copy(p, u.rest)
	u.rest = u.rest[n:]
	return n, nil
}

// GetImage implements AdminService.
func (s *Server) GetImage(ctx context.Context, r *baremetalv1.GetImageRequest) (*baremetalv1.Image, error) {
	if err := validate.Key("image_ref", r.GetImageRef()); err != nil {
		return nil, err
	}
	return s.stores.Catalog.GetImage(ctx, r.GetImageRef())
}

var imageKeys = validate.Keys{
	"kind": validate.Among(same(validate.ImageKinds)),
	"arch": validate.Among(same(validate.ImageArchs)),
}

func same(words []string) map[string]string {
	out := map[string]string{}
	for _, w := range words {
		out[w] = w
	}
	return out
}

// ListImages implements AdminService.
func (s *Server) ListImages(
	ctx context.Context, r *baremetalv1.ListImagesRequest,
) (*baremetalv1.ListImagesResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Image]{
		Name: "images", Short: true, Checks: imageKeys,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Image, error) {
			return s.stores.Catalog.ListImages(ctx, catalogstore.ImageFilter{AfterRef: after.ID, Limit: limit})
		},
		Place: service.ByID((*baremetalv1.Image).GetImageRef),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListImagesResponse{Images: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// RemoveImage implements AdminService.
func (s *Server) RemoveImage(ctx context.Context, r *baremetalv1.RemoveImageRequest) (*baremetalv1.Image, error) {
	if err := validate.Key("image_ref", r.GetImageRef()); err != nil {
		return nil, err
	}
	return s.Config.Images.Remove(ctx, r.GetImageRef(), service.Actor(ctx))
}
