package console

import (
	"compress/gzip"
	"net/http"
	"strings"
	"sync"
)

// smallest is the size from which answers are compressed, in bytes: below it an answer is one packet all the same.
const smallest = 1400

// zips are unused compressors: each has most of a megabyte.
var zips = sync.Pool{New: func() any {
	z, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // a level that there is
	return z
}}

// compressed returns a writer that compresses JSON, and a function that ends it. Streams stay uncompressed: their lines
// must not wait in a compressor. A page of another site cannot cause such an answer and measure it.
func compressed(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, func()) {
	if !acceptsGzip(r) {
		return w, func() {}
	}
	z := &zipped{ResponseWriter: w}
	return z, z.end
}

// zipped decides with the first bytes, which are all of an answer that is small.
type zipped struct {
	http.ResponseWriter

	code    int
	decided bool
	z       *gzip.Writer
}

// Unwrap is for http.ResponseController.
func (z *zipped) Unwrap() http.ResponseWriter { return z.ResponseWriter }

// WriteHeader keeps a code of JSON until the first bytes are there.
func (z *zipped) WriteHeader(code int) {
	if z.decided || z.code != 0 {
		return
	}
	z.code = code
	h := z.Header()
	if code != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), "application/json") ||
		h.Get("Content-Encoding") != "" {
		z.decide(false)
	}
}

func (z *zipped) decide(compress bool) {
	z.decided = true
	if compress {
		h := z.Header()
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		h.Del("Content-Length")
		z.z, _ = zips.Get().(*gzip.Writer) // nothing else is in it
		z.z.Reset(z.ResponseWriter)
	}
	z.ResponseWriter.WriteHeader(z.code)
}

func (z *zipped) Write(b []byte) (int, error) {
	z.WriteHeader(http.StatusOK)
	if !z.decided {
		z.decide(len(b) >= smallest)
	}
	if z.z != nil {
		return z.z.Write(b)
	}
	return z.ResponseWriter.Write(b)
}

func (z *zipped) end() {
	if z.code != 0 && !z.decided {
		z.decide(false)
	}
	if z.z != nil {
		_ = z.z.Close() // a client that does not read it has gone
		zips.Put(z.z)
		z.z = nil
	}
}
