// Package transport connects the agent to its controller: TLS that survives wrong clocks, connections that
// notice a dead peer, and little memory for each.
package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

// Dialer opens a connection to host:port. Each call looks the name up anew, and obeys WithSource.
type Dialer func(ctx context.Context, address string) (net.Conn, error)

// deadPeer is how long sent bytes may stay unacknowledged before the connection counts as broken. Heartbeats are sent,
// so that a controller that has vanished is noticed without its help.
const deadPeer = 20 * time.Second

// A controller that stands still keeps its connections, and its kernel goes on acknowledging: only pings that it must
// answer itself show it. They are sent where nothing has come for a while.
const (
	pingAfter = 15 * time.Second
	pingWait  = 10 * time.Second
)

// NetDialer is the Dialer for the real network.
func NetDialer() Dialer {
	d := net.Dialer{
		Timeout:         10 * time.Second,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
		Control: func(_, _ string, c syscall.RawConn) error {
			var set error
			err := c.Control(func(fd uintptr) {
				// TCP_USER_TIMEOUT, tcp(7), in milliseconds.
				set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(deadPeer.Milliseconds()))
			})
			if err != nil {
				return err
			}
			return set
		},
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		bound := fromSource(ctx, d)
		return bound.DialContext(ctx, "tcp", address)
	}
}

// Mutual is the TLS configuration for the fleet listener.
func Mutual(own tls.Certificate, roots *x509.CertPool, address string, now func() time.Time) (*tls.Config, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("controller address %q: %w", address, err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: host, Time: now,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil },
	}, nil
}

// ServerOnly is the TLS configuration for the enrolment listener: the caller shows no certificate.
func ServerOnly(roots *x509.CertPool, address string, now func() time.Time) (*tls.Config, error) {
	cfg, err := Mutual(tls.Certificate{}, roots, address, now)
	if err != nil {
		return nil, err
	}
	cfg.GetClientCertificate = nil
	return cfg, nil
}

// Conn is a gRPC connection that knows its TLS handshake.
type Conn struct {
	*grpc.ClientConn
	creds *recorder
}

// How long a connection may take to be established. When a whole fleet reconnects, most agents wait for their turn, and
// a repeated attempt costs the controller more than a patient one. But where there is another controller, this one may
// hang.
const (
	Patience     = 20 * time.Second
	LastPatience = time.Minute
)

// Dial makes a connection; it is established by the first call or by Connect, within the time that patience is.
func Dial(address string, cfg *tls.Config, dial Dialer, patience time.Duration) (*Conn, error) {
	rec := &recorder{TransportCredentials: credentials.NewTLS(cfg)}
	c, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(rec),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, address) }),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: patience}),
		grpc.WithReadBufferSize(0), // 32 KiB less per idle connection
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingWait}),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithIdleTimeout(0),
	)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return &Conn{ClientConn: c, creds: rec}, nil
}

// Connect waits until the connection is established and returns its TLS state. When the handshake failed, its own error
// is returned, which gRPC would have turned into a string.
func (c *Conn) Connect(ctx context.Context) (tls.ConnectionState, error) {
	for {
		c.ClientConn.Connect()
		s := c.GetState()
		switch s {
		case connectivity.Ready:
			return c.creds.last()
		case connectivity.TransientFailure, connectivity.Shutdown:
			if _, err := c.creds.last(); err != nil {
				return tls.ConnectionState{}, err
			}
			return tls.ConnectionState{}, fmt.Errorf("connect to %s: connection failed", c.Target())
		}
		if !c.WaitForStateChange(ctx, s) {
			return tls.ConnectionState{}, fmt.Errorf("connect to %s: %w", c.Target(), ctx.Err())
		}
	}
}

// recorder remembers how the last handshake went.
type recorder struct {
	credentials.TransportCredentials
	mu    sync.Mutex
	state tls.ConnectionState
	err   error
	// unknown is set when the other end does not know the CA of our certificate.
	unknown bool
}

// ClientHandshake implements credentials.TransportCredentials.
func (r *recorder) ClientHandshake(
	ctx context.Context, authority string, raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := r.TransportCredentials.ClientHandshake(ctx, authority, raw)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err, r.unknown = err, false
	if err == nil {
		conn = listening{conn, r}
	}
	if t, ok := info.(credentials.TLSInfo); ok {
		r.state = t.State
	}
	return conn, info, err
}

// listening hears the alert that refuses our certificate: TLS 1.3 sends it when the handshake is over for us.
type listening struct {
	net.Conn
	r *recorder
}

// Read implements net.Conn.
func (l listening) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" && op.Err.Error() == unknownCA {
		l.r.mu.Lock()
		defer l.r.mu.Unlock()
		l.r.unknown = true
	}
	return n, err
}

// unknownCA is the text of crypto/tls for alert 48 (RFC 8446, 6.2); its type is not exported.
const unknownCA = "tls: unknown certificate authority"

// AuthorityUnknown reports whether the other end has refused our certificate because it does not know its CA.
func (c *Conn) AuthorityUnknown() bool {
	c.creds.mu.Lock()
	defer c.creds.mu.Unlock()
	return c.creds.unknown
}

// Clone implements credentials.TransportCredentials; the copy keeps reporting here.
func (r *recorder) Clone() credentials.TransportCredentials { return r }

func (r *recorder) last() (tls.ConnectionState, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state, r.err
}
