package site

import (
	"context"
	"errors"
	"fmt"
	"io"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/cache"
	"github.com/ingot-metal/ingot/internal/failure"
)

// blobSource fetches from the controller.
func blobSource(call Call) cache.Source {
	return func(ctx context.Context, sha256 string, offset int64, to cache.Sink) error {
		err := call(ctx, func(ctx context.Context, c fleetv1.AgentServiceClient) error {
			stream, err := c.FetchBlob(ctx, &fleetv1.FetchBlobRequest{Sha256: sha256, Offset: offset})
			if err != nil {
				return err
			}
			return copyBlob(stream.Recv, to)
		})
		if err != nil && failure.KindOf(err) == failure.KindNotFound {
			return fmt.Errorf("%w: %w", cache.ErrNotFound, err)
		}
		return err
	}
}

// copyBlob takes the messages of one stream.
func copyBlob(receive func() (*fleetv1.FetchBlobResponse, error), to cache.Sink) error {
	for first := true; ; first = false {
		m, err := receive()
		if errors.Is(err, io.EOF) && !first {
			return nil
		}
		if err != nil {
			return fmt.Errorf("fetch blob: %w", err)
		}
		if first {
			if err := to.Begin(m.GetSize()); err != nil {
				return err
			}
		}
		if len(m.GetData()) == 0 {
			continue
		}
		if _, err := to.Write(m.GetData()); err != nil {
			return err
		}
	}
}
