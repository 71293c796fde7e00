package session

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Probe makes new contact with one of the controllers: a new look-up of its name, a new TCP connection, and a TLS
// handshake in both directions. The controller's first bytes are the proof: a server refuses the client's certificate
// only after the client's side of a TLS 1.3 handshake is complete.
func (r *Runner) Probe(ctx context.Context) error {
	list, err := r.cfg.Addresses()
	if err != nil {
		return err
	}
	var errs []error
	for _, address := range list {
		err := r.probeOne(ctx, address)
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", address, err))
	}
	return errors.Join(append(errs, errors.New("no controller answers"))...)
}

func (r *Runner) probeOne(ctx context.Context, address string) (err error) {
	now, err := r.now(ctx)
	if err != nil {
		return err
	}
	creds, err := r.cfg.Dir.Credentials()
	if err != nil {
		return err
	}
	roots, err := r.cfg.Dir.Trust()
	if err != nil {
		return err
	}
	cfg, err := transport.Mutual(creds.TLS(), roots, address, func() time.Time {
		return pki.EffectiveNow(now, r.cfg.Clock.Now())
	})
	if err != nil {
		return err
	}
	raw, err := r.cfg.Dial(ctx, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raw.Close()) }()
	return Handshake(ctx, raw, cfg)
}

// Handshake makes a TLS handshake that ends with the first byte of the server's HTTP/2 preface.
func Handshake(ctx context.Context, raw net.Conn, cfg *tls.Config) error {
	cfg = cfg.Clone()
	cfg.NextProtos = []string{"h2"}
	if deadline, ok := ctx.Deadline(); ok {
		if err := raw.SetDeadline(deadline); err != nil {
			return fmt.Errorf("set deadline: %w", err)
		}
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	// A gRPC server sends its SETTINGS unasked (RFC 9113, 3.4).
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("TLS handshake: the controller does not take the certificate: %w", err)
	}
	return nil
}

// Controllers resolves the controller addresses, as far as that works now.
func Controllers(ctx context.Context, addresses []string) []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range addresses {
		host, port, err := net.SplitHostPort(a)
		if err != nil {
			continue
		}
		n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
		if err != nil {
			continue
		}
		ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			continue
		}
		for _, ip := range ips {
			out = append(out, netip.AddrPortFrom(ip.Unmap(), uint16(n)))
		}
	}
	return out
}
