package httpboot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/agent/site/cache"
)

// quantum is how much is sent before the deadline is set anew and another connection gets its turn.
const quantum = 64 << 10

// sendBlob sends a blob as it is.
func (s *Server) sendBlob(w http.ResponseWriter, r *http.Request, digest string) {
	s.send(w, r, digest, `"`+digest+`"`, "application/octet-stream", nil)
}

// sendUKI sends a unified kernel image with this machine's parameters in it.
func (s *Server) sendUKI(w http.ResponseWriter, r *http.Request, t target) {
	params := t.params(s.base)
	sum := sha256.Sum256([]byte(params))
	tag := `"` + t.files.UKI + "-" + hex.EncodeToString(sum[:8]) + `"`
	s.send(w, r, t.files.UKI, tag, "application/efi", func(b *cache.Blob) (io.ReadSeeker, error) {
		return s.uki.overlay(r.Context(), t.files.UKI, b, params)
	})
}

// send answers with a blob, or with what change makes of it.
func (s *Server) send(
	w http.ResponseWriter, r *http.Request, digest, tag, kind string, change func(*cache.Blob) (io.ReadSeeker, error),
) {
	select {
	case s.files <- struct{}{}:
		defer func() { <-s.files }()
	default:
		later(w, "too many files are being sent")
		return
	}
	b, err := s.cfg.Blobs(r.Context(), digest)
	if err != nil {
		s.noBlob(w, r, digest, err)
		return
	}
	defer func() { _ = b.Close() }() // only read
	var content io.ReadSeeker = b
	if f := b.File(); f != nil {
		content = f // the kernel sends it by itself
	}
	if change != nil {
		if content, err = change(b); err != nil {
			s.noBlob(w, r, digest, err)
			return
		}
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "no-store")
	out := &turns{ResponseWriter: w, control: http.NewResponseController(w), stall: s.cfg.Stall}
	http.ServeContent(out, r, "", time.Time{}, content)
	if out.err != nil {
		s.cfg.Log.Warn("file not sent whole", "sha256", digest, "remote", r.RemoteAddr, "error", out.err)
	}
	// The connection may be used again, at its own pace. An error means that it can't, and shows at its next use.
	_ = out.control.SetWriteDeadline(time.Time{})
}

func (s *Server) noBlob(w http.ResponseWriter, r *http.Request, digest string, err error) {
	s.cfg.Log.Error("file not sent", "sha256", digest, "remote", r.RemoteAddr, "error", err)
	if errors.Is(err, cache.ErrNotFound) {
		http.Error(w, "the controller has no such file", http.StatusNotFound)
		return
	}
	if errors.Is(err, cache.ErrCorrupt) {
		http.Error(w, "the controller's copy of the file is damaged", http.StatusBadGateway)
		return
	}
	later(w, "the file can't be had now")
}

func later(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "2")
	http.Error(w, why, http.StatusServiceUnavailable)
}

// turns sends in pieces, each with a deadline of its own: a machine that takes nothing is dropped, a slow one is not.
type turns struct {
	http.ResponseWriter
	control *http.ResponseController
	stall   time.Duration
	err     error
}

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 64<<10)
	return &b
}}

// ReadFrom implements io.ReaderFrom, which http.ServeContent's copy looks for. src is always limited to the bytes to
// send.
func (t *turns) ReadFrom(src io.Reader) (n int64, err error) {
	defer func() { t.err = err }()
	limited, ok := src.(*io.LimitedReader)
	if !ok {
		return 0, fmt.Errorf("send file: %T has no end", src)
	}
	_, file := limited.R.(*os.File)
	direct, can := t.ResponseWriter.(io.ReaderFrom)
	if !file || !can {
		return t.copyWaiting(limited)
	}
	for limited.N > 0 {
		if err := t.control.SetWriteDeadline(time.Now().Add(t.stall)); err != nil {
			return n, err
		}
		piece := &io.LimitedReader{R: limited.R, N: min(limited.N, quantum)}
		m, err := direct.ReadFrom(piece)
		n += m
		limited.N -= m
		if err != nil || m == 0 {
			return n, err
		}
	}
	return n, nil
}

// copyWaiting is for a source that may have to wait for its bytes: the deadline is the reader's only.
func (t *turns) copyWaiting(src io.Reader) (n int64, err error) {
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for {
		m, rerr := src.Read(*buf)
		if m > 0 {
			if err := t.control.SetWriteDeadline(time.Now().Add(t.stall)); err != nil {
				return n, err
			}
			w, werr := t.ResponseWriter.Write((*buf)[:m])
			n += int64(w)
			if werr != nil {
				return n, werr
			}
		}
		switch {
		case errors.Is(rerr, io.EOF):
			return n, nil
		case rerr != nil:
			return n, rerr
		}
	}
}
