package redfish

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/stmcginnis/gofish/common"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/obs/redact"
)

// maxDocument is more than any document that we ask for; logs come in pages.
const maxDocument = 8 << 20

// transport sets the context of the current call on each request: gofish keeps one for the life of a client. It bounds
// time and size, and refuses to leave the service. It is used by one call at a time.
type transport struct {
	base    http.RoundTripper
	origin  *url.URL
	timeout time.Duration
	most    int             // bytes of a document
	ctx     context.Context //nolint:containedctx // of the call that is going on, see above
	// heard is called with the time of each answer.
	heard func(time.Duration)
	// grace is how long the answer to a log-in is awaited after its caller has gone: it names the session to end.
	grace time.Duration
	// unanswered: the last request with the password got no answer.
	unanswered atomic.Bool
	// after is the pause that the last answer asked for; 0 where it asked for none.
	after time.Duration
	// rsaOnly reports whether the service takes a handshake whose keys are exchanged by RSA; nil without TLS.
	rsaOnly func(context.Context) bool
	// root is the service root as it was read last: it stays as it is for the life of a client.
	root []byte
}

// noTarget is gofish's error for a missing link.
const noTarget = "unable to execute request, no target provided"

var errElsewhere = errors.New("a link leads to another host")

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host != t.origin.Host || req.URL.Scheme != t.origin.Scheme || req.URL.User != nil {
		return nil, errElsewhere
	}
	if t.root != nil && isRoot(req) {
		return t.rememberedRoot(req), nil
	}
	for try := 0; ; try++ {
		resp, err := t.send(req)
		wait, slash := t.pause(resp, err, try), wantsSlash(req, resp, err)
		if wait == 0 && !slash {
			return resp, err
		}
		if err := errors.Join(discard(resp), sleep(t.ctx, wait)); err != nil {
			return nil, err
		}
		if req, err = again(req, slash); err != nil {
			return nil, err
		}
	}
}

// send makes one request, and reads a service root to its end.
func (t *transport) send(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(t.ctx, t.timeout)
	if isLogin(req) {
		cancel()
		ctx, cancel = t.outlive()
	}
	req = req.Clone(ctx)
	req.Close = false
	req.Header.Set("OData-Version", "4.0")
	began := time.Now()
	resp, err := t.base.RoundTrip(t.watched(req))
	if err != nil {
		if handshakeFailed(err) && t.rsaOnly != nil && t.rsaOnly(ctx) {
			err = fmt.Errorf("%w: %w", provider.ErrRSAOnly, err)
		}
		cancel()
		return nil, err
	}
	t.unanswered.Store(false)
	if t.heard != nil {
		t.heard(time.Since(began))
	}
	resp.Body = &body{inner: withoutMark(resp.Body), left: t.most, done: cancel}
	switch {
	case resp.StatusCode == http.StatusOK && isRoot(req):
		err = t.keepRoot(resp)
	case isLogin(req) && resp.Header.Get("X-Auth-Token") != "" && resp.Header.Get("Location") == "":
		err = locate(resp)
	}
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// watched notes when a request that carries the password is on its way.
func (t *transport) watched(req *http.Request) *http.Request {
	_, _, basic := req.BasicAuth()
	if !basic && !isLogin(req) {
		return req
	}
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		WroteHeaders: func() { t.unanswered.Store(true) },
	}))
}

func isRoot(req *http.Request) bool {
	return req.Method == http.MethodGet &&
		strings.TrimSuffix(req.URL.Path, "/") == strings.TrimSuffix(common.DefaultServiceRoot, "/")
}

func (t *transport) rememberedRoot(req *http.Request) *http.Response {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(t.root)),
		Body: io.NopCloser(bytes.NewReader(t.root)), Request: req,
	}
}

// keepRoot reads the body of a service root to its end, and keeps it.
func (t *transport) keepRoot(resp *http.Response) error {
	b, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	t.root = b
	resp.Body = io.NopCloser(bytes.NewReader(b))
	return nil
}

// marked is a body that may begin with a byte order mark, which some services write and no JSON has (RFC 8259, 8.1).
type marked struct {
	io.Closer
	*bufio.Reader
	looked bool
}

func withoutMark(b io.ReadCloser) io.ReadCloser {
	return &marked{Closer: b, Reader: bufio.NewReader(b)}
}

func (m *marked) Read(p []byte) (int, error) {
	if !m.looked {
		m.looked = true
		if mark, _ := m.Peek(3); string(mark) == "\ufeff" {
			_, _ = m.Discard(len(mark)) // they are buffered
		}
	}
	return m.Reader.Read(p)
}

type body struct {
	inner io.ReadCloser
	left  int
	done  context.CancelFunc
}

var errHuge = fmt.Errorf("%w: a document has no end", provider.ErrProtocol)

func (b *body) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errHuge
	}
	n, err := b.inner.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

func (b *body) Close() error {
	defer b.done()
	return b.inner.Close()
}

// redirect follows a service that calls a document by another path (DSP0266: "/redfish/v1" may redirect to
// "/redfish/v1/"). Another host is refused by RoundTrip; an order is never sent elsewhere than it was meant for. Its
// own path with a slash at the end is not elsewhere: see wantsSlash.
func redirect(req *http.Request, via []*http.Request) error {
	const most = 3
	if req.Method != http.MethodGet || via[0].Method != http.MethodGet || len(via) > most {
		return http.ErrUseLastResponse
	}
	return nil
}

// classify returns an error as the one of package provider. ctx is that of the call.
func classify(ctx context.Context, err error) error {
	var (
		answered *common.Error
		refusal  *effect.Refusal
	)
	switch {
	case err == nil, errors.As(err, &refusal):
		return err
	case errors.As(err, &answered) && answered.HTTPReturnedStatusCode != 0:
		return classifyStatus(answered) // also where it came late: a refused log-in counts against the account
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", provider.ErrSilent, context.Cause(ctx))
	case strings.Contains(err.Error(), noTarget):
		return &refused{status: http.StatusNotImplemented, detail: "the service has no such link"}
	case ours(err):
		return err
	case errors.Is(err, errElsewhere):
		return fmt.Errorf("%w: %w", provider.ErrProtocol, errElsewhere)
	}
	return classifyNetwork(err)
}

// ours reports whether err has been classified already.
func ours(err error) bool {
	for _, known := range []error{
		provider.ErrCredentials, provider.ErrSilent, provider.ErrProtocol, provider.ErrRefused, provider.ErrCertificate,
	} {
		if errors.Is(err, known) {
			return true
		}
	}
	return false
}

func classifyStatus(e *common.Error) error {
	detail := fmt.Sprintf("%d %s", e.HTTPReturnedStatusCode, brief(e))
	if e.HTTPReturnedStatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%w: %s", provider.ErrUnauthorized, detail)
	}
	return &refused{status: e.HTTPReturnedStatusCode, detail: detail, full: sessionsFull(e)}
}

// essential is for documents without which this is no Redfish service, or not the one that was opened.
func essential(ctx context.Context, err error) error {
	err = classify(ctx, err)
	if code := statusOf(err); code == http.StatusNotFound || code/100 == 3 {
		return fmt.Errorf("%w: %w", provider.ErrProtocol, err)
	}
	return err
}

// refused is a refusal by the service.
type refused struct {
	status int
	detail string
	full   bool          // it has no session left
	after  time.Duration // the pause that it asked for
}

// sessionsFull reports whether a refusal speaks of the number of sessions: SessionLimitExceeded of the Base registry,
// and RAC0218 of iDRAC.
func sessionsFull(e *common.Error) bool {
	text := e.Code + " " + e.Message
	for _, info := range e.ExtendedInfos {
		text += " " + info.MessageID + " " + info.Message
	}
	return strings.Contains(text, "SessionLimitExceeded") || strings.Contains(text, "RAC0218") ||
		strings.Contains(strings.ToLower(text), "maximum number of user sessions")
}

func (r *refused) Error() string { return provider.ErrRefused.Error() + ": " + r.detail }

func (r *refused) Unwrap() error { return provider.ErrRefused }

func statusOf(err error) int {
	var r *refused
	if errors.As(err, &r) {
		return r.status
	}
	return 0
}

// brief is what the service said, for people: short and without secrets.
func brief(e *common.Error) string {
	text := e.Message
	for _, info := range e.ExtendedInfos {
		if info.Message != "" {
			text = info.MessageID + ": " + info.Message
			break
		}
	}
	const most = 200
	if text = redact.String(text); len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

// handshakeFailed reports whether the service has found nothing in what a TLS handshake offered (RFC 8446, 6.2).
func handshakeFailed(err error) bool {
	const handshakeFailure = 40
	var alert tls.AlertError
	return errors.As(err, &alert) && alert == handshakeFailure ||
		strings.Contains(err.Error(), "remote error: tls: handshake failure")
}

// rsaSuites exchange keys by RSA, without forward secrecy. They are offered to find out why a handshake failed, and no
// byte is sent over them.
var rsaSuites = []uint16{
	tls.TLS_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_RSA_WITH_AES_128_CBC_SHA256,
	tls.TLS_RSA_WITH_AES_128_CBC_SHA, tls.TLS_RSA_WITH_AES_256_CBC_SHA, tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA,
}

func takesRSA(dial *net.Dialer, address string) func(context.Context) bool {
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, CipherSuites: rsaSuites,
		InsecureSkipVerify: true, //nolint:gosec // nothing is sent
	}
	return func(ctx context.Context) bool {
		conn, err := (&tls.Dialer{NetDialer: dial, Config: cfg}).DialContext(ctx, "tcp", address)
		if err != nil {
			return false
		}
		_ = conn.Close() // nothing was said
		return true
	}
}

// classifyNetwork is for errors of the way there, and for answers that make no sense.
func classifyNetwork(err error) error {
	var (
		viaURL    *url.Error
		handshake tls.RecordHeaderError
		malformed textproto.ProtocolError
		untrusted *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &untrusted):
		return fmt.Errorf("%w: %w", provider.ErrCertificate, err)
	case strings.Contains(err.Error(), "protocol version not supported"),
		strings.Contains(err.Error(), "unsupported protocol version"):
		return fmt.Errorf("%w: %w", provider.ErrOldTLS, err)
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &handshake), errors.As(err, &malformed),
		strings.Contains(err.Error(), "malformed HTTP"):
		return fmt.Errorf("%w: %w", provider.ErrProtocol, err)
	case errors.As(err, &viaURL), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", provider.ErrSilent, err)
	}
	// A body that ends early is a decoder's error; one that is no JSON too.
	return fmt.Errorf("%w: %w", provider.ErrProtocol, err)
}
