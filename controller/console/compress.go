package console

import (
	"compress/gzip"
	"net/http"
	"strings"
)

// compressed gives a writer that compresses JSON, and what ends it. Streams stay as they are: their lines must not wait
// in a compressor. Nobody can make a page of another site send a request that is answered so, and measure it.
func compressed(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func()) {
	if !acceptsGzip(r) {
		return w, func() {}
	}
	z := &zipped{ResponseWriter: w}
	return z, z.end
}

type zipped struct {
	http.ResponseWriter
	begun bool
	z     *gzip.Writer
}

// Unwrap is for http.ResponseController.
func (z *zipped) Unwrap() http.ResponseWriter { return z.ResponseWriter }

func (z *zipped) WriteHeader(code int) {
	if !z.begun {
		z.begun = true
		h := z.Header()
		if code == http.StatusOK && strings.HasPrefix(h.Get("Content-Type"), "application/json") &&
			h.Get("Content-Encoding") == "" {
			h.Set("Content-Encoding", "gzip")
			h.Add("Vary", "Accept-Encoding")
			h.Del("Content-Length")
			z.z, _ = gzip.NewWriterLevel(z.ResponseWriter, gzip.BestSpeed) // a level that there is
		}
	}
	z.ResponseWriter.WriteHeader(code)
}

func (z *zipped) Write(b []byte) (int, error) {
	if !z.begun {
		z.WriteHeader(http.StatusOK)
	}
	if z.z != nil {
		return z.z.Write(b)
	}
	return z.ResponseWriter.Write(b)
}

func (z *zipped) end() {
	if z.z != nil {
		_ = z.z.Close() // whoever does not read it has gone
	}
}
