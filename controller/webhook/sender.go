package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

// SenderConfig is what requests are made with.
type SenderConfig struct {
	Policy Policy
	// Timeout bounds one request with all that belongs to it; 0 means 15 s.
	Timeout time.Duration
	// Roots are the authorities that receivers are verified by; nil means those of the system.
	Roots *x509.CertPool
	// UserAgent is a header of every request.
	UserAgent string
	// Resolver is the system's when nil.
	Resolver *net.Resolver
	Clock    clock.Clock
}

// Sender makes requests. It is safe for concurrent use.
type Sender struct {
	cfg    SenderConfig
	client *http.Client
}

const (
	defaultTimeout = 15 * time.Second
	// maxBody is how much of an answer is read. It is not used: reading it lets the connection serve again.
	maxBody = 4 << 10
	// drainFor bounds the time for that; the status is known by then.
	drainFor = time.Second
	// maxHeader bounds the headers of an answer.
	maxHeader = 64 << 10
)

// NewSender makes a sender. It follows no redirects and asks no proxy: who answers is who was checked.
func NewSender(c SenderConfig) *Sender {
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Clock == nil {
		c.Clock = clock.Real()
	}
	dialer := c.Policy.Dialer(c.Timeout, c.Resolver)
	return &Sender{cfg: c, client: &http.Client{
		Timeout:       c.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dialer.DialContext, TLSClientConfig: &tls.Config{RootCAs: c.Roots, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 4, MaxIdleConns: 100, IdleConnTimeout: time.Minute,
			MaxResponseHeaderBytes: maxHeader, DisableCompression: true, TLSHandshakeTimeout: c.Timeout,
		},
	}}
}

func (p Policy) checkDial(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("parse address to dial: %w", err)
	}
	return p.CheckAddr(ap.Addr())
}

// CheckURL refuses an address that this sender would not call.
func (s *Sender) CheckURL(raw string) error { return s.cfg.Policy.CheckURL(raw) }

// Timeout bounds one request.
func (s *Sender) Timeout() time.Duration { return s.cfg.Timeout }

// Close ends idle connections.
func (s *Sender) Close() { s.client.CloseIdleConnections() }

// Request is one try.
type Request struct {
	URL     string
	EventID string
	Body    []byte
	Secrets []Secret
}

// Send makes one try. It fails only where ctx has ended; everything else is a result.
func (s *Sender) Send(ctx context.Context, r Request) (Result, error) {
	if err := s.cfg.Policy.CheckURL(r.URL); err != nil {
		// The rules may have become stricter since it was stored.
		return Result{Problem: "the address is refused: " + err.Error()}, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return Result{Problem: "the address cannot be called"}, nil //nolint:nilerr // told in the result, without the address
	}
	now := s.cfg.Clock.Now()
	req.Header.Set("Content-Type", ContentType)
	req.Header.Set("User-Agent", s.cfg.UserAgent)
	req.Header.Set(HeaderID, r.EventID)
	req.Header.Set(HeaderTimestamp, timestamp(now))
	req.Header.Set(HeaderSignature, Sign(r.Secrets, r.EventID, now, r.Body))
	resp, err := s.client.Do(req) //nolint:bodyclose // drain closes it
	if err != nil {
		if ctx.Err() != nil {
			return Result{}, fmt.Errorf("send event: %w", ctx.Err())
		}
		return Result{Problem: s.problem(err)}, nil
	}
	drain(resp.Body)
	return Judge(resp.StatusCode, resp.Header.Get("Retry-After"), s.cfg.Clock.Now()), nil
}

// drain reads a little of a body, so that the connection can be used again, and closes it: at once where it is long,
// after drainFor where it trickles.
func drain(body io.ReadCloser) {
	stop := time.AfterFunc(drainFor, func() { _ = body.Close() }) // a body closed twice is closed
	defer stop.Stop()
	// An error of the body of an answer that we do not use does not matter.
	_, _ = io.CopyN(io.Discard, body, maxBody)
	_ = body.Close()
}

// problem returns in a few words why no answer came.
func (s *Sender) problem(err error) string {
	var (
		refused *RefusedError
		dns     *net.DNSError
		cert    *tls.CertificateVerificationError
		alert   tls.AlertError
		record  tls.RecordHeaderError
		remote  *net.OpError
		timeout interface{ Timeout() bool }
	)
	switch {
	case errors.As(err, &refused):
		return "refused: " + refused.Error()
	case errors.As(err, &dns):
		return "DNS: " + dns.Err
	case errors.As(err, &cert):
		return "TLS: " + cert.Err.Error()
	case errors.As(err, &alert):
		return "TLS: " + alert.Error()
	case errors.As(err, &remote) && remote.Op == "remote error":
		return shortened("TLS: the receiver refuses: " + remote.Err.Error())
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return "TLS: the receiver does not speak it"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("no answer within %s", s.cfg.Timeout)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "the receiver closed the connection without an answer"
	}
	return shortened("request failed: " + innermost(err))
}

// innermost is the cause without the address, whose query may hold a key.
func innermost(err error) string {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err.Error()
		}
		err = next
	}
}

const maxProblem = 200

func shortened(s string) string {
	if len(s) <= maxProblem {
		return s
	}
	return s[:maxProblem]
}
