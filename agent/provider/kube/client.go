package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/when"
)

const (
	// callTime bounds one call. The API server's own limit is a minute.
	callTime = 20 * time.Second
	// maxAnswer bounds the bytes that are read of an answer. A page of pods is a few MiB.
	maxAnswer = 64 << 20
	// mostWait bounds how long a server may ask not to be asked again.
	mostWait = time.Hour
)

// Config is where a cluster is, and what one speaks to it with: a bearer token, or a client certificate.
type Config struct {
	// Server is the API server's base URL, https.
	Server string
	// CAPEM are the certificates that the server's must chain to.
	CAPEM          []byte
	Token          string
	CertificatePEM []byte
	KeyPEM         []byte
}

// Client speaks to one cluster. Close it when it is no longer used.
type Client struct {
	base  *url.URL
	token string
	http  *http.Client
}

// New makes a client; it sends nothing to the cluster.
func New(cfg Config) (*Client, error) {
	base, err := url.Parse(cfg.Server)
	if err != nil || base.Scheme != "https" || base.Host == "" {
		return nil, failure.Invalid("INVALID_FIELD", "the cluster's server %.100q is no https URL", cfg.Server)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(cfg.CAPEM) {
		return nil, failure.Invalid("INVALID_FIELD", "the cluster's CA is not in PEM")
	}
	t := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if len(cfg.CertificatePEM) > 0 {
		pair, err := tls.X509KeyPair(cfg.CertificatePEM, cfg.KeyPEM)
		if err != nil {
			// the cause may show the key
			return nil, failure.Invalid("INVALID_FIELD", "the client certificate for the cluster cannot be used")
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return &Client{base: base, token: cfg.Token, http: &http.Client{
		Timeout: callTime,
		Transport: &http.Transport{TLSClientConfig: t, Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			IdleConnTimeout: 30 * time.Second},
		// An API server never redirects; a server that does should not see the token.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close ends the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// call is one request. Empty kind means that there is no body.
type call struct {
	method, path string
	query        url.Values
	kind         string
	body         any
	// may429: being told to wait is an answer, and not a sign of a server that is too busy.
	may429 bool
}

const (
	kindJSON  = "application/json"
	kindMerge = "application/merge-patch+json" // RFC 7386
)

// do makes a call and parses the answer into `into`, which may be nil.
func (c *Client) do(ctx context.Context, q call, into any) error {
	req, err := c.request(ctx, q)
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return unreachable(ctx, err)
	}
	defer resp.Body.Close() //nolint:errcheck // everything was read, or nothing more is wanted
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return unreachable(ctx, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return refused(q, resp, raw)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return failure.Unavailable("CLUSTER_UNREACHABLE", "the cluster's answer to %s %s is not what an API server says: %v",
			q.method, q.path, err)
	}
	return nil
}

func (c *Client) request(ctx context.Context, q call) (*http.Request, error) {
	var body io.Reader
	if q.kind != "" {
		raw, err := json.Marshal(q.body)
		if err != nil {
			return nil, fmt.Errorf("serialize a request to the cluster: %w", err)
		}
		body = bytes.NewReader(raw)
	}
	u := c.base.JoinPath(q.path)
	u.RawQuery = q.query.Encode()
	req, err := http.NewRequestWithContext(ctx, q.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("make a request to the cluster: %w", err)
	}
	req.Header.Set("Accept", kindJSON)
	req.Header.Set("User-Agent", "ingot-agent")
	if q.kind != "" {
		req.Header.Set("Content-Type", q.kind)
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

// unreachable returns why there was no answer; after the end of ctx it returns its cause.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // without the URL, which is in the record
	}
	return failure.Unavailable("CLUSTER_UNREACHABLE", "the cluster's API server: %v", err)
}

// Status is the body of an API server's answer without success (metav1.Status).
type Status struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Details struct {
		RetryAfterSeconds int `json:"retryAfterSeconds"`
		Causes            []struct {
			Reason  string `json:"reason"`
			Message string `json:"message"`
		} `json:"causes"`
	} `json:"details"`
}

// Refusal is an answer that is no success.
type Refusal struct {
	Status
	call string
	// RetryAfter is how long the server asks not to be asked again, an hour at most; 0 where it does not ask.
	RetryAfter time.Duration
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("%s: %d %s: %s", r.call, r.Code, r.Reason, strings.TrimSpace(r.Message))
}

// refused reads the server's own words; a server that has none is no API server, or one that is in trouble.
func refused(q call, resp *http.Response, raw []byte) error {
	r := &Refusal{call: q.method + " " + q.path}
	if err := json.Unmarshal(raw, &r.Status); err != nil {
		r.Message = fmt.Sprintf("%.200q", raw)
	}
	r.Code = resp.StatusCode
	r.RetryAfter = max(when.RetryAfter(resp.Header.Get("Retry-After"), time.Now(), mostWait),
		time.Duration(min(r.Details.RetryAfterSeconds, int(mostWait/time.Second)))*time.Second)
	switch {
	case r.Code == http.StatusUnauthorized || r.Code == http.StatusForbidden:
		return failure.Denied("CLUSTER_ACCESS_DENIED", "%v", r)
	case r.Code >= 500 || r.Code < 400, r.Code == http.StatusTooManyRequests && !q.may429:
		return failure.Unavailable("CLUSTER_UNREACHABLE", "%v", r)
	}
	return r
}

// is reports whether an error is a refusal with this code.
func is(err error, code int) bool {
	var r *Refusal
	return errors.As(err, &r) && r.Code == code
}

// NotFound reports whether what was asked for is not there.
func NotFound(err error) bool { return is(err, http.StatusNotFound) }
