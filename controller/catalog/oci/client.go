package oci

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	// maxManifest is how large the specification advises registries to let a manifest be.
	maxManifest = 4 << 20
	// resolveWithin bounds all that comes before the file itself.
	resolveWithin = time.Minute
	maxRedirects  = 5
)

// manifestTypes are asked for; the answer is recognized by its content.
var manifestTypes = strings.Join([]string{ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex,
	"application/vnd.docker.distribution.manifest.v2+json", "application/vnd.docker.distribution.manifest.list.v2+json",
}, ", ")

// Client asks registries.
type Client struct {
	// Transport makes the requests; it decides which addresses may be called.
	Transport http.RoundTripper
	// AuthFile holds credentials in the form of ~/.docker/config.json; empty: without log-ins.
	AuthFile string
	// Hosts, as host or host:port, may be asked beside the registry itself, where it sends for tokens and blobs.
	Hosts []string
	// PlainHTTP are those hosts that are asked by http.
	PlainHTTP []string
}

// File is the content of an artefact. Its reader compares size and digest.
type File struct {
	io.ReadCloser
	Size int64
	// SHA256 is in lower-case hexadecimal digits.
	SHA256 string
	// URL has the digest of what was found.
	URL string
}

// Plain reports whether the registry is asked by http.
func (c Client) Plain(s Source) bool { return slices.Contains(c.PlainHTTP, s.ref.Host()) }

// Open asks for the file. Of an index it takes the image of the architecture. Errors that are not typed are those of
// the connection.
func (c Client) Open(ctx context.Context, s Source, arch string) (*File, error) {
	p := puller{Source: s, scheme: "https"}
	if c.Plain(s) {
		p.scheme = "http"
	}
	p.client = &auth.Client{
		Client: &http.Client{Transport: guard{Client: c, registry: s.ref.Host()}, CheckRedirect: fewRedirects},
		Credential: func(_ context.Context, host string) (auth.Credential, error) {
			return credentialOf(c.AuthFile, host)
		},
		Cache: auth.NewCache(), ClientID: "ingot",
	}
	m, sum, err := p.resolve(ctx, arch)
	if err != nil {
		return nil, err
	}
	layer, err := choose(m.Layers, s.layer)
	if err != nil {
		return nil, err
	}
	resp, err := p.get(ctx, "blobs/"+layer.Digest.String(), "*/*")
	if err != nil {
		return nil, err
	}
	if n := resp.ContentLength; n >= 0 && n != layer.Size {
		return nil, errors.Join(unavailable("the registry sends %d bytes, and the manifest says %d", n, layer.Size),
			resp.Body.Close())
	}
	return &File{ReadCloser: resp.Body, Size: layer.Size, SHA256: layer.Digest.Encoded(), URL: s.pinned(sum)}, nil
}

// guard refuses requests to another host or by another scheme than the configuration allows: redirects, and a
// registry's address for tokens.
type guard struct {
	Client
	registry string
}

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	host := strings.ToLower(r.URL.Host)
	var err error
	switch {
	case host != g.registry && !slices.Contains(g.Hosts, host):
		err = refused("the registry sends to %s; an admin allows it under images.registries.hosts", host)
	case r.URL.Scheme != "https" && !slices.Contains(g.PlainHTTP, host):
		err = refused("the registry sends to %s without TLS", host)
	}
	if err != nil {
		if r.Body != nil {
			err = errors.Join(err, r.Body.Close())
		}
		return nil, err
	}
	return g.Transport.RoundTrip(r)
}

func fewRedirects(_ *http.Request, before []*http.Request) error {
	if len(before) > maxRedirects {
		return refused("the registry redirects more than %d times", maxRedirects)
	}
	return nil
}

// puller asks for what belongs to one artefact.
type puller struct {
	Source
	client *auth.Client
	scheme string
}

// manifest is the part of a manifest or of an index that names the file.
type manifest struct {
	Manifests []ocispec.Descriptor `json:"manifests"`
	Layers    []ocispec.Descriptor `json:"layers"`
}

// resolve finds the manifest. found is the digest of what the reference names.
func (p puller) resolve(ctx context.Context, arch string) (m manifest, found digest.Digest, err error) {
	ctx, cancel := context.WithTimeout(ctx, resolveWithin)
	defer cancel()
	m, found, err = p.manifest(ctx, p.ref.Reference)
	if err != nil || len(m.Manifests) == 0 {
		return m, found, err
	}
	one, err := chooseArch(m.Manifests, arch)
	if err != nil {
		return m, found, err
	}
	m, _, err = p.manifest(ctx, one.Digest.String())
	if err == nil && len(m.Manifests) > 0 {
		err = unsupported("the artefact is an index of an index")
	}
	return m, found, err
}

func (p puller) manifest(ctx context.Context, reference string) (m manifest, found digest.Digest, err error) {
	resp, err := p.get(ctx, "manifests/"+reference, manifestTypes)
	if err != nil {
		return m, "", err
	}
	defer resp.Body.Close() //nolint:errcheck // everything was read, or nothing more is wanted
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxManifest+1))
	if err != nil {
		return m, "", err
	}
	if len(raw) > maxManifest {
		return m, "", unavailable("the manifest has more than %d bytes", maxManifest)
	}
	found = digest.FromBytes(raw)
	if want, err := digest.Parse(reference); err == nil && want != found {
		return m, "", failure.Precondition("IMAGE_DIGEST_MISMATCH", "the registry gives a manifest of %s for %s", found, want)
	}
	if err := json.Unmarshal(raw, &m); err != nil || len(m.Manifests) > 0 && len(m.Layers) > 0 {
		return m, "", unsupported("the registry's answer is no manifest")
	}
	return m, found, nil
}

// get asks for a part of the repository, with credentials where the registry wants some.
func (p puller) get(ctx context.Context, what, accept string) (*http.Response, error) {
	ctx = auth.AppendRepositoryScope(ctx, p.ref, auth.ActionPull)
	u := url.URL{Scheme: p.scheme, Host: p.ref.Host(), Path: "/v2/" + p.ref.Repository + "/" + what}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, requestError(err)
	}
	switch status := resp.Status; resp.StatusCode {
	case http.StatusOK:
		return resp, nil
	case http.StatusNotFound:
		err = unavailable("the registry has no %s", p.ref)
	case http.StatusUnauthorized, http.StatusForbidden:
		err = needsCredentials("the registry answers " + status)
	default:
		err = unavailable("the registry answers %s", status)
	}
	return nil, errors.Join(err, resp.Body.Close())
}

// requestError types an error before an answer. A typed error is without the URL: a redirect's has secrets.
func requestError(err error) error {
	var typed *failure.Error
	var answer *errcode.ErrorResponse
	switch {
	case errors.As(err, &typed):
		return typed
	case errors.As(err, &answer):
		return needsCredentials("the registry gives no token: " + http.StatusText(answer.StatusCode))
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		return needsCredentials("the registry wants a user and a password")
	}
	return err
}

func needsCredentials(what string) *failure.Error {
	return unavailable("%s; credentials are in images.registries.auth_file, and the repository must exist", what)
}

func unavailable(format string, args ...any) *failure.Error {
	return failure.Precondition("IMAGE_UNAVAILABLE", format, args...)
}

func unsupported(format string, args ...any) *failure.Error {
	return failure.Precondition("IMAGE_UNSUPPORTED", format, args...)
}

func refused(format string, args ...any) *failure.Error {
	return failure.Invalid("IMAGE_URL_REFUSED", format, args...).WithField("image.url", "not fetched from there")
}
