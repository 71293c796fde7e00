// Package ocitest is a registry for tests: it serves artefacts by the OCI distribution specification 1.1, "Pulling",
// and lies on request.
package ocitest

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Repository is the one that there is.
const Repository = "images/debian"

// Registry is one with TLS.
type Registry struct {
	*httptest.Server
	t testing.TB

	mu sync.Mutex
	// served is what there is, by "manifests/REFERENCE" and "blobs/DIGEST".
	served map[string][]byte
	kinds  map[string]string
	lie    func(w http.ResponseWriter, r *http.Request) bool
}

// Start starts a registry. It ends with the test.
func Start(t testing.TB) *Registry {
	r := &Registry{t: t, served: map[string][]byte{}, kinds: map[string]string{}}
	r.Server = httptest.NewTLSServer(r)
	t.Cleanup(r.Close)
	return r
}

// Host is the registry's name in a URL.
func (r *Registry) Host() string { return r.Listener.Addr().String() }

// URL of an artefact: reference comes behind the repository, such as ":12".
func (r *Registry) URL(reference string) string {
	return "oci://" + r.Host() + "/" + Repository + reference
}

// Lie has fn asked before each answer; it reports whether it has answered itself.
func (r *Registry) Lie(fn func(w http.ResponseWriter, r *http.Request) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lie = fn
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	lie := r.lie
	r.mu.Unlock()
	if lie != nil && lie(w, q) {
		return
	}
	what, ok := strings.CutPrefix(q.URL.Path, "/v2/"+Repository+"/")
	r.mu.Lock()
	content, there := r.served[what]
	kind := r.kinds[what]
	r.mu.Unlock()
	if !ok || !there || q.Method != http.MethodGet {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"errors":[{"code":"MANIFEST_UNKNOWN"}]}`))
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Docker-Content-Digest", digest.FromBytes(content).String())
	_, _ = w.Write(content)
}

// Layer is one file of an artefact.
type Layer struct {
	Title, MediaType string
	Content          []byte
}

// Push puts an artefact there, under a tag and its digest, as ORAS makes it (OCI image specification 1.1, "Guidelines
// for Artifact Usage").
func (r *Registry) Push(tag string, layers ...Layer) ocispec.Descriptor {
	m := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: "application/vnd.ingot.disk", Config: ocispec.DescriptorEmptyJSON}
	for _, l := range layers {
		d := ocispec.Descriptor{MediaType: l.MediaType, Digest: digest.FromBytes(l.Content), Size: int64(len(l.Content))}
		if l.Title != "" {
			d.Annotations = map[string]string{ocispec.AnnotationTitle: l.Title}
		}
		r.put("blobs/"+d.Digest.String(), "application/octet-stream", l.Content)
		m.Layers = append(m.Layers, d)
	}
	return r.PushManifest(tag, ocispec.MediaTypeImageManifest, m)
}

// PushIndex puts an index of manifests there.
func (r *Registry) PushIndex(tag string, manifests ...ocispec.Descriptor) ocispec.Descriptor {
	return r.PushManifest(tag, ocispec.MediaTypeImageIndex, ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageIndex, Manifests: manifests})
}

// PushManifest puts any document there.
func (r *Registry) PushManifest(tag, kind string, document any) ocispec.Descriptor {
	raw, err := json.Marshal(document)
	if err != nil {
		r.t.Fatal(err)
	}
	d := ocispec.Descriptor{MediaType: kind, Digest: digest.FromBytes(raw), Size: int64(len(raw))}
	r.put("manifests/"+tag, kind, raw)
	r.put("manifests/"+d.Digest.String(), kind, raw)
	return d
}

func (r *Registry) put(what, kind string, content []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served[what], r.kinds[what] = content, kind
}
