package main

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// handshake measures what the machine can do: full mutual TLS 1.3 handshakes over loopback, both sides on its
// processors, with keys and chains as the fleet has them, and nothing behind them.
func (b *bench) handshake(ctx context.Context, r *report) error {
	rate, err := rawHandshakes(ctx, b.o.handshakes)
	if err != nil {
		return err
	}
	r.handshakesPerSecond = rate
	r.add("raw mTLS handshakes", rate, "/s", "both sides on this machine's %d processors", runtime.NumCPU())
	return nil
}

func rawHandshakes(ctx context.Context, length time.Duration) (float64, error) {
	server, client, err := mutualConfigs()
	if err != nil {
		return 0, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	group, groupCtx := task.New(ctx)
	closed := context.AfterFunc(groupCtx, func() { _ = l.Close() }) // ends Accept, which is all that is wanted
	defer closed()
	group.Go("accept", func(ctx context.Context) error { return serveHandshakes(ctx, group, l, server) })
	var done atomic.Int64
	began := time.Now()
	for i := range 4 * runtime.NumCPU() {
		from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 254, byte(i), 1}), 0))
		group.Go("connect", func(ctx context.Context) error {
			d := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: from}, Config: client}
			for ctx.Err() == nil {
				if err := oneHandshake(ctx, d, l.Addr().String()); err != nil {
					return unlessOver(ctx, err)
				}
				done.Add(1)
			}
			return nil
		})
	}
	<-groupCtx.Done()
	rate := float64(done.Load()) / time.Since(began).Seconds()
	return rate, group.Wait()
}

// unlessOver gives no error when the time is up, which connections may notice before the context does.
func unlessOver(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ctx.Err() != nil || ok && !time.Now().Before(deadline) {
		return nil
	}
	return err
}

// oneHandshake ends with the first byte from the server, which has then verified the client.
func oneHandshake(ctx context.Context, d tls.Dialer, address string) error {
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return err
		}
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}

func serveHandshakes(ctx context.Context, group *task.Group, l net.Listener, cfg *tls.Config) error {
	for {
		raw, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		group.Go("handshake", func(ctx context.Context) error {
			conn := tls.Server(raw, cfg)
			err := conn.HandshakeContext(ctx)
			if err == nil {
				_, err = conn.Write([]byte{0})
			}
			// The client closes first, so that this side has no connections in TIME_WAIT.
			if err == nil {
				_, _ = conn.Read(make([]byte, 1))
			}
			return unlessOver(ctx, errors.Join(err, raw.Close()))
		})
	}
}

// mutualConfigs makes a root, an issuer below it, and a leaf for each side.
func mutualConfigs() (server, client *tls.Config, err error) {
	root, err := sign("root", nil, true)
	if err != nil {
		return nil, nil, err
	}
	issuer, err := sign("issuer", &root, true)
	if err != nil {
		return nil, nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(root.Leaf)
	sides := [2]*tls.Config{}
	for i := range sides {
		leaf, err := sign("localhost", &issuer, false)
		if err != nil {
			return nil, nil, err
		}
		leaf.Certificate = append(leaf.Certificate, issuer.Leaf.Raw)
		sides[i] = &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{leaf}, RootCAs: pool, ClientCAs: pool,
			ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "localhost", SessionTicketsDisabled: true,
		}
	}
	return sides[0], sides[1], nil
}

func sign(name string, by *tls.Certificate, ca bool) (tls.Certificate, error) {
	key, err := pki.NewKey()
	if err != nil {
		return tls.Certificate{}, err
	}
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: ca,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	parent, parentKey := t, any(key)
	if by != nil {
		parent, parentKey = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, t, parent, key.Public(), parentKey)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, err
}
