package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/ingot-metal/ingot/internal/cloudmeta"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Target is a machine's SSH server and what it is known by.
type Target struct {
	// Endpoint is host:port.
	Endpoint string
	// HostKeys are "SHA256:…" or lines of authorized_keys(5); at least one.
	HostKeys []string
	// Base is where runs are remembered on the machine: an absolute path. Empty means /var/lib/ingot-ssh for root and
	// .ingot-ssh in the home of any other user.
	Base string
}

// Credentials are those of the log-in.
type Credentials struct {
	Username string
	// PrivateKey is PEM, without a passphrase.
	PrivateKey []byte
}

// String keeps the key out of logs.
func (Credentials) String() string { return "[sealed]" }

// GoString keeps it out of logs too.
func (Credentials) GoString() string { return "[sealed]" }

// Timeouts of a connection.
const (
	dialTimeout = 10 * time.Second
	// callTimeout is how long one call on a connection may take, but for kills and uploads.
	callTimeout = 15 * time.Second
	longTimeout = 60 * time.Second
)

// Client is a connection to one machine. It is not safe for concurrent use.
type Client struct {
	conn        *ssh.Client
	base        string
	fingerprint string
}

// Dial connects and logs in. Its errors are failures: SSH_HOST_KEY_UNKNOWN, SSH_HOST_KEY_MISMATCH, SSH_AUTH_FAILED and
// SSH_UNREACHABLE.
func Dial(ctx context.Context, t Target, c Credentials) (*Client, error) {
	p, err := parsePins(t.HostKeys)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(c.PrivateKey)
	if err != nil {
		return nil, failure.Precondition("SSH_AUTH_FAILED", "the private key of the SSH credentials cannot be used")
	}
	for _, algorithms := range p.algorithms() {
		var conn *ssh.Client
		var seen ssh.PublicKey
		conn, err = dial(ctx, t.Endpoint, clientConfig(p, c.Username, signer, algorithms, &seen))
		if err == nil {
			return &Client{conn: conn, base: t.Base, fingerprint: ssh.FingerprintSHA256(seen)}, nil
		}
		var noCommon *ssh.AlgorithmNegotiationError
		if !errors.Is(err, errMismatch) && !errors.As(err, &noCommon) {
			return nil, explain(t.Endpoint, err)
		}
	}
	return nil, explain(t.Endpoint, err)
}

func clientConfig(p pins, user string, signer ssh.Signer, algorithms []string, seen *ssh.PublicKey) *ssh.ClientConfig {
	return &ssh.ClientConfig{
		Config: ssh.Config{
			KeyExchanges: []string{
				ssh.KeyExchangeMLKEM768X25519, ssh.KeyExchangeCurve25519, ssh.KeyExchangeECDHP256, ssh.KeyExchangeECDHP384,
				ssh.KeyExchangeECDHP521,
			},
			Ciphers: []string{ssh.CipherAES256GCM, ssh.CipherAES128GCM, ssh.CipherChaCha20Poly1305, ssh.CipherAES256CTR,
				ssh.CipherAES128CTR},
			MACs: []string{ssh.HMACSHA256ETM, ssh.HMACSHA512ETM, ssh.HMACSHA256, ssh.HMACSHA512},
		},
		User: user, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: p.check(seen),
		HostKeyAlgorithms: algorithms,
		ClientVersion:     "SSH-2.0-Ingot",
	}
}

func dial(ctx context.Context, endpoint string, cfg *ssh.ClientConfig) (*ssh.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	d := net.Dialer{Control: cloudmeta.Control}
	raw, err := d.DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	// The handshake knows no context: it ends with its connection.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() }) // its error has no reader
	conn, channels, requests, err := ssh.NewClientConn(raw, endpoint, cfg)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = raw.Close() // the first error has the cause
		return nil, fmt.Errorf("log in: %w", err)
	}
	return ssh.NewClient(conn, channels, requests), nil
}

// explain returns an error with a text for operators.
func explain(endpoint string, err error) error {
	var noCommon *ssh.AlgorithmNegotiationError
	switch {
	case errors.Is(err, errMismatch):
		return failure.Precondition("SSH_HOST_KEY_MISMATCH",
			"%s shows another host key than those of the machine; nothing was sent to it: %v", endpoint, err)
	case errors.As(err, &noCommon):
		return failure.Precondition("SSH_HOST_KEY_MISMATCH",
			"%s has no host key of the pinned type, or none of the algorithms that are strong enough: %v", endpoint, err)
	case strings.Contains(err.Error(), "unable to authenticate"): // the package has no typed error for it
		return failure.Precondition("SSH_AUTH_FAILED", "%s refuses the user or the key", endpoint).Wrap(err)
	}
	return unreachable(endpoint, err)
}

func unreachable(endpoint string, err error) error {
	return failure.Unavailable("SSH_UNREACHABLE", "%s: %v", endpoint, err).Wrap(err)
}

// Fingerprint is that of the host key that the server has shown.
func (c *Client) Fingerprint() string { return c.fingerprint }

// Close hangs up.
func (c *Client) Close() error {
	if err := c.conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close SSH connection: %w", err)
	}
	return nil
}
