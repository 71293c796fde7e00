package maas

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/internal/failure"
)

// Region is a MAAS installation and the key to it.
type Region struct {
	// Ref is its name with us.
	Ref string
	// Endpoint is the URL of MAAS without /api/2.0, such as http://maas.example:5240/MAAS.
	Endpoint string
	// APIKey is consumer:token:secret.
	APIKey string
	// CA holds root certificates, PEM; empty means the system's.
	CA      []byte
	Version int64
	// UserData is the template of what deployments are given.
	UserData string
	// Retain leaves machines in MAAS when they are decommissioned.
	Retain bool
}

// String keeps the key out of logs.
func (r Region) String() string { return r.Ref + " at " + r.Endpoint }

// GoString keeps it out too.
func (r Region) GoString() string { return r.String() }

// apiVersion of MAAS, 2.0 since 2016.
const apiVersion = "2.0"

// callTimeout is how long one request may take.
const callTimeout = 60 * time.Second

// Client speaks to one region. It is safe for concurrent use.
type Client struct {
	region  Region
	base    http.RoundTripper
	timeout time.Duration
	user    atomic.Pointer[string]
}

// NewClient makes a client. timeout is that of one request; 0 means a minute. The error never holds the key.
func NewClient(r Region, timeout time.Duration) (*Client, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DisableKeepAlives = true // the library closes each connection
	if len(r.CA) > 0 {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(r.CA) {
			return nil, failure.Invalid("INVALID_FIELD", "region %s: no certificate in the root certificates", r.Ref)
		}
		t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	if timeout == 0 {
		timeout = callTimeout
	}
	return &Client{region: r, base: t, timeout: timeout}, nil
}

func (r Region) check() error {
	u, err := url.Parse(r.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil:
		return failure.Invalid("INVALID_FIELD", "region %s: the endpoint is no http or https URL", r.Ref)
	case strings.Count(r.APIKey, ":") != 2:
		return failure.Invalid("INVALID_FIELD", "region %s: the API key has not the form consumer:token:secret", r.Ref)
	}
	return nil
}
