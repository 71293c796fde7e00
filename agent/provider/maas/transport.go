package maas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
)

// maxAnswer bounds an answer of MAAS, in bytes: a list of a few thousand machines is well below.
const maxAnswer = 64 << 20

// exchange is one request and its answer, below the client library. The library knows neither contexts nor limits, and
// it repeats requests by itself after Retry-After; here it never sees one.
type exchange struct {
	ctx  context.Context //nolint:containedctx // the library takes none, and an exchange lives no longer than its call
	base http.RoundTripper
	// connected: something of the request may have reached MAAS.
	connected atomic.Bool
	status    int
	// again: MAAS allows the request to be repeated. With 409 it has rolled its transaction back.
	again bool
	body  string
}

var errRedirected = errors.New("MAAS answers with a redirect; give the endpoint as it is")

// RoundTrip implements http.RoundTripper.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := httptrace.WithClientTrace(x.ctx,
		&httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { x.connected.Store(true) }})
	res, err := x.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer res.Body.Close() //nolint:errcheck // everything wanted was read
	x.status = res.StatusCode
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read answer: %w", err)
	case len(raw) > maxAnswer:
		return nil, fmt.Errorf("the answer has more than %d MiB", maxAnswer>>20)
	case res.StatusCode >= 300 && res.StatusCode < 400:
		return nil, errRedirected
	}
	if res.StatusCode >= 400 {
		x.body = said(raw)
	}
	x.again = res.Header.Get("Retry-After") != ""
	res.Header.Del("Retry-After")
	res.Body = io.NopCloser(bytes.NewReader(raw))
	return res, nil
}

// said returns MAAS's text of an error, as one short line.
func said(raw []byte) string {
	text := strings.Join(strings.Fields(string(raw[:min(len(raw), 2000)])), " ")
	if strings.HasPrefix(text, "<") {
		return "" // a page of some proxy
	}
	return text[:min(len(text), 300)]
}
