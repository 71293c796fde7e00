package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/pki"
)

const (
	// blobChunk is how much of a blob one message carries.
	blobChunk = 256 << 10
	// blobRecheck is how often a long transfer asks whether its reader is still welcome.
	blobRecheck = 2 * time.Second
)

// FetchBlob streams a stored file from an offset on. It holds one chunk in memory.
func (s *Server) FetchBlob(
	r *fleetv1.FetchBlobRequest, stream grpc.ServerStreamingServer[fleetv1.FetchBlobResponse],
) error {
	who, err := s.member(stream.Context())
	if err != nil {
		return err
	}
	b, size, err := s.cfg.Blobs.Open(stream.Context(), r.GetSha256(), r.GetOffset())
	if err != nil {
		return err
	}
	defer b.Close() //nolint:errcheck // opened for reading
	if err := stream.Send(&fleetv1.FetchBlobResponse{Size: size}); err != nil {
		return err
	}
	t := transfer{s: s, who: who, checked: s.cfg.Clock.Now()}
	return t.run(stream, b, size-r.GetOffset())
}

// member lets in agents that are on record.
func (s *Server) member(ctx context.Context) (auth.Agent, error) {
	who, err := agentOf(ctx)
	if err != nil {
		return auth.Agent{}, err
	}
	role, err := s.cfg.Store.Credentials.RoleOfAgent(ctx, who.ID)
	if err != nil {
		return auth.Agent{}, err
	}
	switch role {
	case "site", "host", "installer":
		return who, nil
	}
	return auth.Agent{}, failure.Denied("SCOPE_TOO_SMALL", "only agents of a site, a host or an installer fetch blobs")
}

// transfer is one blob on its way.
type transfer struct {
	s       *Server
	who     auth.Agent
	checked time.Time
}

// run sends what is left of the blob, and ends well when all of it is sent.
func (t *transfer) run(
	stream grpc.ServerStreamingServer[fleetv1.FetchBlobResponse], r io.Reader, left int64,
) error {
	// One buffer for all messages: Send has serialized a message when it returns, and nothing here looks at one later
	// (no stats handler, no tracing).
	buf := make([]byte, blobChunk)
	m := &fleetv1.FetchBlobResponse{}
	for {
		n, err := io.ReadFull(r, buf)
		if n > 0 {
			m.Data = buf[:n]
			if err := stream.Send(m); err != nil {
				return err
			}
			left -= int64(n)
		}
		if left == 0 {
			return nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return failure.Unavailable("IMAGE_STORE_UNAVAILABLE", "the file has ended %d bytes early", left)
		}
		if err != nil {
			return fmt.Errorf("read blob: %w", err)
		}
		if err := t.mayGoOn(stream.Context()); err != nil {
			return err
		}
	}
}

// mayGoOn ends a transfer when the controller stops, or when the reader's certificate has been revoked meanwhile.
func (t *transfer) mayGoOn(ctx context.Context) error {
	if t.s.cfg.Draining.Err() != nil {
		return failure.Unavailable("CONTROLLER_DRAINING", "this controller is shutting down; go on from where you are")
	}
	now := t.s.cfg.Clock.Now()
	if now.Sub(t.checked) < blobRecheck {
		return nil
	}
	t.checked = now
	cert, err := t.s.cfg.Store.Agents.GetCert(ctx, pki.Fingerprint(t.who.Cert.Raw))
	if err != nil {
		return err
	}
	if cert == nil || cert.Revoked {
		return failure.Unauthenticated("CERTIFICATE_REVOKED", "the certificate has been revoked")
	}
	return nil
}
