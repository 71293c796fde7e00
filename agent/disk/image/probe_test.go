package image_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/internal/clock"
)

// TestProbeFindsAnImageThatCannotBeWritten: an image that is not there, is damaged, or is no disk is found out by its
// first bytes.
func TestProbeFindsAnImageThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	damaged := bytes.Clone(packed())
	copy(damaged[200:], bytes.Repeat([]byte("rubbish"), 100))
	for name, c := range map[string]struct {
		content []byte
		format  image.Format
		size    int
		status  int
		want    baremetalv1.Reason
	}{
		"packed":       {packed(), image.RawZstd, 0, 200, 0},
		"raw":          {raw(), image.Raw, 0, 200, 0},
		"not there":    {packed(), image.RawZstd, 0, 404, baremetalv1.Reason_IMAGE_UNAVAILABLE},
		"another size": {packed(), image.RawZstd, 7, 200, baremetalv1.Reason_IMAGE_DIGEST_MISMATCH},
		"damaged":      {damaged, image.RawZstd, 0, 200, baremetalv1.Reason_IMAGE_DIGEST_MISMATCH},
		"short":        {raw()[:5000], image.Raw, 0, 200, baremetalv1.Reason_IMAGE_DIGEST_MISMATCH},
		"no disk":      {make([]byte, 2<<20), image.Raw, 0, 200, baremetalv1.Reason_IMAGE_UNSUPPORTED},
		"an odd kind":  {raw(), "iso", 0, 200, baremetalv1.Reason_IMAGE_UNSUPPORTED},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.status != http.StatusOK {
				http.Error(w, "no", c.status)
				return
			}
			http.ServeContent(w, r, "", noTime, bytes.NewReader(c.content))
		}))
		err := image.Probe(t.Context(), image.Source{
			URL: server.URL, Size: int64(c.size), Client: image.NewClient(), Clock: hurried{clock.Real()},
			Log: slog.New(slog.DiscardHandler), Patience: 100 * time.Millisecond,
		}, c.format, 512, firstboot.For{}, nil, nil)
		server.Close()
		if got := reasonOf(err); got != c.want || c.want == 0 && err != nil {
			t.Errorf("%s: %v (%s), want %s", name, err, got, c.want)
		}
	}
}
