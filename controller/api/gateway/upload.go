package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failure"
)

// UploadPath is where an image's bytes are sent, with its name behind it: PUT, application/octet-stream. The query has
// fields of Image. It is UploadImage, which streams from the client, and so has no path of its own.
const UploadPath = "/api/v1/image-uploads/"

// uploadQuery are the fields of Image that an upload's query may have.
var uploadQuery = []string{"arch", "firmware", "format", "kind", "minimum_disk_bytes", "sha256_raw", "sha256_source"}

const (
	bytesType = "application/octet-stream"
	// uploadChunk is how much of a body is in memory, in bytes.
	uploadChunk = 256 << 10
)

// upload passes a body on to UploadImage as it comes. A body that breaks off adds no image.
func (g *Gateway) upload(w http.ResponseWriter, r *http.Request, op operation, escaped string) {
	query, code, refusal := g.known(w, r, op)
	if refusal != nil {
		g.refuse(w, code, refusal)
		return
	}
	image, refusal := uploaded(escaped, query)
	if refusal != nil {
		g.refuse(w, http.StatusBadRequest, refusal)
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != bytesType {
		g.refuse(w, http.StatusUnsupportedMediaType, failure.Invalid(reasonMediaType,
			"send the image as Content-Type: %s", bytesType))
		return
	}
	image.FileSizeBytes = max(0, r.ContentLength)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel() // an upload that was not closed is given up
	ctx, err := runtime.AnnotateContext(ctx, g.mux, r, op.call)
	var added *baremetalv1.Image
	if err == nil {
		added, err = g.pass(ctx, image, g.patient(w, r.Body))
	}
	if err != nil {
		if r.ProtoMajor == 1 {
			w.Header().Set("Connection", "close") // what is left of the body is not read
		}
		g.callFailed(ctx, g.mux, nil, w, r, err)
		return
	}
	raw, err := codec{}.Marshal(added)
	if err != nil {
		g.callFailed(ctx, g.mux, nil, w, r, err)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	g.write(w, raw)
}

// uploaded returns the image that path and query describe.
func uploaded(escaped string, query url.Values) (*baremetalv1.Image, *failure.Error) {
	for name, values := range query {
		if len(values) > 1 && name != "firmware" {
			return nil, failure.Invalid(reasonInvalidField, "%s stands there twice", name).WithField(name, "once")
		}
	}
	ref, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, failure.Invalid(reasonInvalidField, "the image's name cannot be read: %v", err)
	}
	least, err := strconv.ParseInt(query.Get("minimum_disk_bytes"), 10, 64)
	if query.Has("minimum_disk_bytes") && err != nil {
		return nil, failure.Invalid(reasonInvalidField, "minimum_disk_bytes is a number of bytes").
			WithField("minimum_disk_bytes", "a whole number")
	}
	return &baremetalv1.Image{ImageRef: ref, Arch: query.Get("arch"), Firmware: query["firmware"],
		Format: query.Get("format"), Kind: query.Get("kind"), MinimumDiskBytes: least,
		Sha256Raw: query.Get("sha256_raw"), Sha256Source: query.Get("sha256_source")}, nil
}

// pass sends the image and its bytes. An answer that comes before the end of the bytes is the answer.
func (g *Gateway) pass(
	ctx context.Context, image *baremetalv1.Image, body io.Reader,
) (*baremetalv1.Image, error) {
	stream, err := baremetalv1.NewAdminServiceClient(g.cfg.Conn).UploadImage(ctx)
	if err != nil {
		return nil, err
	}
	part := &baremetalv1.UploadImageRequest{Part: &baremetalv1.UploadImageRequest_Image{Image: image}}
	buf := make([]byte, uploadChunk)
	for {
		if err := stream.Send(part); errors.Is(err, io.EOF) {
			break // it was refused: the reason is in the answer
		} else if err != nil {
			return nil, fmt.Errorf("send image: %w", err)
		}
		n, err := io.ReadFull(body, buf)
		if n == 0 && errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, failure.ToStatus(failure.Invalid(reasonInvalidField, "the image broke off: %v", err)).Err()
		}
		part = &baremetalv1.UploadImageRequest{Part: &baremetalv1.UploadImageRequest_Data{Data: buf[:n]}}
	}
	return stream.CloseAndRecv()
}

// patient returns the body with a bound on how long the client may be silent.
func (g *Gateway) patient(w http.ResponseWriter, body io.Reader) io.Reader {
	return patient{body, http.NewResponseController(w), g.cfg.BodyTimeout}
}

type patient struct {
	io.Reader
	connection *http.ResponseController
	patience   time.Duration
}

// Read implements io.Reader.
func (p patient) Read(b []byte) (int, error) {
	// Where a deadline cannot be set, as in tests without a connection, no client can be slow.
	_ = p.connection.SetReadDeadline(time.Now().Add(p.patience))
	return p.Reader.Read(b)
}
