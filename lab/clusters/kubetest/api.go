package kubetest

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// Object is a Kubernetes object, or a list of them.
type Object = map[string]any

// API speaks to an API server as one user.
type API struct {
	t    testing.TB
	base string
	http *http.Client
}

// NewAPI makes a client with a client certificate.
func NewAPI(t testing.TB, base string, ca, cert, key []byte) *API {
	t.Helper()
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair},
		MinVersion: tls.VersionTLS12}}
	t.Cleanup(tr.CloseIdleConnections)
	return &API{t: t, base: base, http: &http.Client{Transport: tr}}
}

// Try makes a call and returns the status code and the answer, 0 where there was none.
func (a *API) Try(method, path, kind string, body any) (int, Object) {
	var r io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			a.t.Fatal(err)
		}
		r = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.base+path, r)
	if err != nil {
		a.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", orJSON(kind))
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return 0, Object{"error": err.Error()}
	}
	defer resp.Body.Close() //nolint:errcheck // it was read to its end
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, Object{"error": err.Error()}
	}
	out := Object{}
	if json.Unmarshal(raw, &out) != nil {
		out["text"] = string(raw)
	}
	return resp.StatusCode, out
}

func orJSON(kind string) string {
	if kind == "" {
		return "application/json"
	}
	return kind
}

// Must makes a call that succeeds.
func (a *API) Must(method, path string, body any) Object {
	a.t.Helper()
	code, out := a.Try(method, path, "", body)
	if code < 200 || code > 299 {
		a.t.Fatalf("%s %s: %d %v", method, path, code, out)
	}
	return out
}

// Create makes an object of a collection.
func (a *API) Create(path string, o Object) Object {
	a.t.Helper()
	return a.Must(http.MethodPost, path, o)
}

// Get reads an object; nil where there is none.
func (a *API) Get(path string) Object {
	a.t.Helper()
	code, out := a.Try(http.MethodGet, path, "", nil)
	switch code {
	case http.StatusOK:
		return out
	case http.StatusNotFound:
		return nil
	}
	a.t.Fatalf("GET %s: %d %v", path, code, out)
	return nil
}

// Merge changes an object by a merge patch.
func (a *API) Merge(path string, patch Object) Object {
	a.t.Helper()
	code, out := a.Try(http.MethodPatch, path, "application/merge-patch+json", patch)
	if code != http.StatusOK {
		a.t.Fatalf("PATCH %s: %d %v", path, code, out)
	}
	return out
}

// Delete deletes an object at once.
func (a *API) Delete(path string) {
	a.t.Helper()
	a.Must(http.MethodDelete, path, Object{"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0})
}

// In reads a field, such as In(o, "spec", "unschedulable"); nil where it is not there.
func In(o Object, path ...string) any {
	var v any = o
	for _, p := range path {
		m, ok := v.(Object)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// Text is In as a string; empty where it is not there.
func Text(o Object, path ...string) string {
	if v := In(o, path...); v != nil {
		return fmt.Sprint(v)
	}
	return ""
}
