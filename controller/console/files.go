package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// dist is what `make console` has built of web/.
//
//go:embed all:dist
var dist embed.FS

// file is one built file, as it is and compressed.
type file struct {
	kind, tag    string
	plain, small []byte
	// lasting is set when its name changes with its content.
	lasting bool
}

// page is the one page; what it shows depends on the rest of the path.
const page = "index.html"

var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml",
}

func readFiles() (map[string]file, error) {
	files := map[string]file{}
	err := fs.WalkDir(dist, "dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		kind, ok := kinds[path.Ext(name)]
		if !ok {
			return fmt.Errorf("built file %s is of no kind that is served", name)
		}
		plain, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		small, err := shrink(plain)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(plain)
		short := strings.TrimPrefix(name, "dist/")
		files[short] = file{kind: kind, tag: `"` + hex.EncodeToString(sum[:12]) + `"`, plain: plain, small: small,
			lasting: strings.HasPrefix(short, "assets/")}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the console's pages: %w", err)
	}
	if _, ok := files[page]; !ok {
		return nil, errors.New("the console has no page; build it: make console")
	}
	return files, nil
}

func shrink(plain []byte) ([]byte, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(plain); err != nil {
		return nil, err
	}
	err = z.Close()
	return b.Bytes(), err
}

// file serves a built file, or the page where the path names none.
func (c *Console) file(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, Path)
	f, ok := c.files[name]
	switch {
	case !ok && (strings.HasPrefix(name, "assets/") || !wantsPage(r) && name != ""):
		http.NotFound(w, r)
		return
	case !ok:
		f = c.files[page]
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("ETag", f.tag)
	h.Set("Vary", "Accept-Encoding")
	h.Set("Cache-Control", "no-cache")
	if f.lasting {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := f.plain
	if acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = f.small
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method == http.MethodGet {
		_, _ = w.Write(body) // a client that does not read it has gone
	}
}

func acceptsGzip(r *http.Request) bool {
	for one := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, quality, _ := strings.Cut(strings.TrimSpace(one), ";")
		if strings.TrimSpace(name) == "gzip" {
			return strings.ReplaceAll(quality, " ", "") != "q=0"
		}
	}
	return false
}
