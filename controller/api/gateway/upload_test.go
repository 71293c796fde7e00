package gateway_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/gateway"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func (r *rig) uploads(path string, body io.Reader) *http.Request {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPut, r.url+gateway.UploadPath+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	return req
}

// TestUpload: the bytes of a body are those of UploadImage, in order, behind what path and query describe.
func TestUpload(t *testing.T) {
	r := newRigWith(t, gateway.Config{BodyTimeout: time.Minute})
	r.double.drains = true
	r.double.tell(nil, &baremetalv1.Image{ImageRef: "debian-13", SizeBytes: 1 << 40})
	sent := bytes.Repeat([]byte("ingot!"), 200_000)
	code, answer := r.do(
		r.uploads("debian-13?kind=os&firmware=bios&firmware=uefi&sha256_source=ab", bytes.NewReader(sent)),
	)
	if code != http.StatusOK || !strings.Contains(string(answer), `"size_bytes":"1099511627776"`) {
		t.Fatalf("%d %s", code, answer)
	}
	want := &baremetalv1.Image{ImageRef: "debian-13", Kind: "os", Firmware: []string{"bios", "uefi"}, Sha256Source: "ab",
		FileSizeBytes: int64(len(sent))}
	first, _ := r.double.last().(*baremetalv1.UploadImageRequest)
	if !proto.Equal(first.GetImage(), want) {
		t.Errorf("the description is %v, not %v", first.GetImage(), want)
	}
	var got []byte
	for _, m := range r.double.all {
		got = append(got, m.(*baremetalv1.UploadImageRequest).GetData()...) //nolint:forcetypeassert // of the call
	}
	if !bytes.Equal(got, sent) {
		t.Errorf("%d bytes arrived, not the %d that were sent", len(got), len(sent))
	}
}

// TestUploadIsRefused before its bytes are read, or as soon as the service refuses it.
func TestUploadIsRefused(t *testing.T) {
	r := newRigWith(t, gateway.Config{BodyTimeout: time.Minute})
	r.double.tell(failure.ToStatus(failure.AlreadyExists("IMAGE_EXISTS", "there is another image of this name")).Err())
	for name, c := range map[string]struct {
		path   string
		change func(*http.Request)
		code   int
		want   string
	}{
		"by the service":   {"debian-13", nil, http.StatusConflict, "IMAGE_EXISTS"},
		"an unknown field": {"debian-13?colour=red", nil, http.StatusBadRequest, "colour"},
		"a field twice":    {"debian-13?kind=os&kind=os", nil, http.StatusBadRequest, "twice"},
		"no number":        {"debian-13?minimum_disk_bytes=much", nil, http.StatusBadRequest, "minimum_disk_bytes"},
		"another type": {"debian-13", func(q *http.Request) { q.Header.Set("Content-Type", "application/json") },
			http.StatusUnsupportedMediaType, "MEDIA_TYPE_UNSUPPORTED"},
		"another method": {"debian-13", func(q *http.Request) { q.Method = http.MethodPost },
			http.StatusMethodNotAllowed, "METHOD_NOT_ALLOWED"},
		"no known token": {"debian-13", func(q *http.Request) { q.Header.Set("Authorization", "Bearer x") },
			http.StatusUnauthorized, "BEARER_INVALID"},
	} {
		req := r.uploads(c.path, strings.NewReader("raw"))
		if c.change != nil {
			c.change(req)
		}
		if code, answer := r.do(req); code != c.code || !strings.Contains(string(answer), c.want) {
			t.Errorf("%s: %d %s, want %d with %s", name, code, answer, c.code, c.want)
		}
	}
}

// TestAnUploadThatBreaksOff never ends well: the service sees that bytes are missing.
func TestAnUploadThatBreaksOff(t *testing.T) {
	r := newRigWith(t, gateway.Config{BodyTimeout: time.Minute})
	r.double.drains = true
	r.double.tell(nil, &baremetalv1.Image{ImageRef: "debian-13"})
	body, more := io.Pipe()
	req := r.uploads("debian-13", body)
	req.ContentLength = 1 << 20
	ended := make(chan error, 1)
	go func() {
		req.Header.Set("Authorization", "Bearer "+r.secret)
		answer, err := r.client.Do(req)
		if err == nil {
			answer.Body.Close()
		}
		ended <- err
	}()
	if _, err := more.Write(make([]byte, 300<<10)); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, r.double.begun.Load, "the upload does not begin")
	more.CloseWithError(io.ErrClosedPipe)
	if err := <-ended; err == nil {
		t.Error("the client has an answer to half a body")
	}
	testkit.Eventually(t, time.Minute, func() bool {
		r.double.mu.Lock()
		defer r.double.mu.Unlock()
		return r.double.unended
	}, "the service took half an image for a whole one")
}
