package transport

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"github.com/ingot-metal/ingot/internal/weburl"
	"net"
	"net/http"
	"net/url"
	"time"
)

// proxyAnswer is how long a proxy may take to reach the other end.
const proxyAnswer = 15 * time.Second

// ErrProxy is returned when a proxy did not make the connection.
var ErrProxy = errors.New("proxy refuses")

// ParseProxy reads the address of a proxy, such as http://192.0.2.1:8080, and returns its host:port.
func ParseProxy(s string) (string, error) {
	u, err := weburl.Parse(s)
	if err != nil {
		return "", fmt.Errorf("proxy: %w", err)
	}
	if u.Scheme != "http" || (u.Path != "" && u.Path != "/") || u.User != nil || u.RawQuery != "" {
		return "", fmt.Errorf("proxy %q is not of the form http://host:port", s)
	}
	if u.Port() == "" {
		return net.JoinHostPort(u.Hostname(), "80"), nil
	}
	return u.Host, nil
}

// ViaProxy is a Dialer that asks an HTTP proxy for each connection (CONNECT, RFC 9110, 9.3.6). TLS is spoken through
// it, so that the proxy sees the destination of a connection and nothing of its content. The proxy looks the name up.
func ViaProxy(proxy string, dial Dialer) (Dialer, error) {
	hostport, err := ParseProxy(proxy)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		c, err := dial(ctx, hostport)
		if err != nil {
			return nil, fmt.Errorf("connect to proxy: %w", err)
		}
		tunnel, err := connect(ctx, c, address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("connect to %s through %s: %w", address, hostport, err), c.Close())
		}
		return tunnel, nil
	}, nil
}

func connect(ctx context.Context, c net.Conn, address string) (net.Conn, error) {
	limit := time.Now().Add(proxyAnswer)
	if d, ok := ctx.Deadline(); ok && d.Before(limit) {
		limit = d
	}
	if err := c.SetDeadline(limit); err != nil {
		return nil, err
	}
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: address}, Host: address, Header: http.Header{}}
	if err := req.Write(c); err != nil {
		return nil, err
	}
	r := bufio.NewReader(c)
	//nolint:bodyclose // the answer to CONNECT has no body: what follows is the tunnel
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %s", ErrProxy, resp.Status)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		return nil, err
	}
	return tunnel{c, r}, nil
}

// tunnel reads first what came together with the proxy's answer.
type tunnel struct {
	net.Conn
	r *bufio.Reader
}

// Read implements net.Conn.
func (t tunnel) Read(b []byte) (int, error) {
	if t.r.Buffered() > 0 {
		return t.r.Read(b)
	}
	return t.Conn.Read(b)
}
