package agents

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/bench/report"
)

// handshake measures what the machine can do: full mutual TLS 1.3 handshakes over loopback, both sides on its
// processors, with keys and chains as the fleet has them, and nothing behind them.
func (b *bench) handshake(ctx context.Context, r *report.Run) (err error) {
	if b.handshakesPerSecond, err = rawHandshakes(ctx, b.Path("handshakes"), b.o.handshakes); err != nil {
		return err
	}
	r.Add("raw mTLS handshakes", b.handshakesPerSecond, "/s", nil, "both sides on this machine's %d processors",
		runtime.NumCPU())
	return nil
}

func rawHandshakes(ctx context.Context, dir string, length time.Duration) (float64, error) {
	server, client, err := mutualConfigs(ctx, dir)
	if err != nil {
		return 0, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	task.Background("accept handshakes", func() {
		for {
			raw, err := l.Accept()
			if err != nil {
				return // the listener was closed at the end
			}
			task.Background("handshake", func() { answer(tls.Server(raw, server)) })
		}
	})
	var done atomic.Int64
	began := time.Now()
	group, _ := task.New(ctx)
	for i := range 4 * runtime.NumCPU() {
		from := net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 254, byte(i), 1}), 0))
		d := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: from}, Config: client}
		group.Go("connect", func(ctx context.Context) error {
			for ; time.Since(began) < length; done.Add(1) {
				if err := oneHandshake(ctx, d, l.Addr().String()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = group.Wait()
	return float64(done.Load()) / time.Since(began).Seconds(), errors.Join(err, l.Close())
}

// answer writes a byte, which completes the handshake. The client learns of a failure by the end of the connection.
func answer(conn *tls.Conn) {
	defer func() { _ = conn.Close() }() // the client closes too
	if _, err := conn.Write([]byte{0}); err == nil {
		// The client closes first, so that this side has no connections in TIME_WAIT.
		_, _ = conn.Read(make([]byte, 1))
	}
}

// oneHandshake ends with the first byte from the server, which has then verified the client.
func oneHandshake(ctx context.Context, d tls.Dialer, address string) error {
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1))
	return err
}

// mutualConfigs makes both sides' keys and chains by an authority like the fleet's.
func mutualConfigs(ctx context.Context, dir string) (server, client *tls.Config, err error) {
	authority, err := ca.New(ca.Config{Dir: dir})
	if err != nil {
		return nil, nil, err
	}
	serverCert, err := authority.ServerCert(ctx, []string{"localhost"}, nil)
	if err != nil {
		return nil, nil, err
	}
	key, err := pki.NewKey()
	if err != nil {
		return nil, nil, err
	}
	id := ids.New(ids.Agent)
	der, err := pki.NewCSR(key, id)
	if err != nil {
		return nil, nil, err
	}
	request, err := pki.ParseCSR(der)
	if err != nil {
		return nil, nil, err
	}
	issued, err := authority.SignAgent(ctx, request, id, 0, time.Now())
	if err != nil {
		return nil, nil, err
	}
	chain, err := pki.DecodeCerts(issued.ChainPEM)
	if err != nil {
		return nil, nil, err
	}
	clientCert := tls.Certificate{PrivateKey: key}
	for _, c := range chain {
		clientCert.Certificate = append(clientCert.Certificate, c.Raw)
	}
	side := func(own tls.Certificate) *tls.Config {
		return &tls.Config{
			MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, RootCAs: authority.Roots(),
			ClientCAs: authority.Roots(), ClientAuth: tls.RequireAndVerifyClientCert, ServerName: "localhost",
			SessionTicketsDisabled: true,
		}
	}
	return side(serverCert), side(clientCert), nil
}
