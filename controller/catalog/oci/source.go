package oci

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/opencontainers/go-digest"
	"oras.land/oras-go/v2/registry"
)

// Scheme is that of the URLs of artefacts.
const Scheme = "oci"

// Source is an artefact in a registry, and which of its files is meant.
type Source struct {
	ref registry.Reference
	// path of the URL, with tag and digest.
	path, layer string
}

var errForm = errors.New("the URL is not oci://REGISTRY/REPOSITORY:TAG or oci://REGISTRY/REPOSITORY@sha256:DIGEST")

// Parse reads oci://REGISTRY/REPOSITORY with :TAG, @sha256:DIGEST or both behind it. ?layer=NAME names one of several
// files by its title or its media type.
func Parse(raw string) (Source, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != Scheme || u.Opaque != "" || u.User != nil || u.Fragment != "" || u.RawPath != "" {
		return Source{}, errForm
	}
	ref, err := registry.ParseReference(strings.ToLower(u.Host) + u.Path)
	if err != nil || ref.Reference == "" {
		return Source{}, errForm
	}
	if d, err := ref.Digest(); err == nil && d.Algorithm() != digest.SHA256 {
		return Source{}, fmt.Errorf("a digest by %s is not verified here; give the one by sha256", d.Algorithm())
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil || len(q) > 1 || len(q) == 1 && (len(q["layer"]) != 1 || q.Get("layer") == "") {
		return Source{}, errors.New("an oci URL has no query other than ?layer=NAME")
	}
	return Source{ref: ref, path: u.Path, layer: q.Get("layer")}, nil
}

// Pinned reports whether the URL has the digest of what it names: then the content cannot be another one.
func (s Source) Pinned() bool {
	_, err := s.ref.Digest()
	return err == nil
}

// pinned is the URL with the digest that was found.
func (s Source) pinned(found digest.Digest) string {
	u := url.URL{Scheme: Scheme, Host: s.ref.Registry, Path: s.path}
	if !s.Pinned() {
		u.Path += "@" + found.String()
	}
	if s.layer != "" {
		u.RawQuery = url.Values{"layer": {s.layer}}.Encode()
	}
	return u.String()
}
