package harness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/internal/pki"
)

// Authority opens the cluster's CA a second time, as a thief of its directory could.
func (c *Cluster) Authority() *ca.Authority {
	c.t.Helper()
	a, err := ca.New(ca.Config{Dir: c.Data + "/ca"})
	if err != nil {
		c.t.Fatalf("open the CA: %v", err)
	}
	return a
}

// Certificate makes a certificate for an agent id with any authority, recorded nowhere.
func Certificate(t testing.TB, a *ca.Authority, agentID string, lifetime time.Duration, now time.Time) tls.Certificate {
	t.Helper()
	key, err := pki.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	der, err := pki.NewCSR(key, "")
	if err != nil {
		t.Fatal(err)
	}
	csr, err := pki.ParseCSR(der)
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.SignAgent(context.Background(), csr, agentID, lifetime, now)
	if err != nil {
		t.Fatal(err)
	}
	chain, err := pki.DecodeCerts(out.ChainPEM)
	if err != nil {
		t.Fatal(err)
	}
	cert := tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, c := range chain {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	return cert
}

func (c *Cluster) roots() *x509.CertPool {
	c.t.Helper()
	root, err := os.ReadFile(c.caFile)
	if err != nil {
		c.t.Fatalf("read CA: %v", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	return pool
}

// Handshake connects to the fleet listener with a certificate, or with none, and returns the controller's error: nil
// when it lets the connection in.
func (c *Cluster) Handshake(certs ...tls.Certificate) error {
	d := tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: c.roots(), Certificates: certs,
		NextProtos: []string{"h2"}}}
	conn, err := d.DialContext(context.Background(), "tcp", c.Fleet.Address())
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	// In TLS 1.3 the client is done first; the server's refusal is the first that it sends. Else it is HTTP/2 settings.
	_, err = conn.Read(make([]byte, 1))
	return err
}

// FleetClient speaks fleet.v1 with a certificate, past any agent.
func (c *Cluster) FleetClient(cert tls.Certificate) fleetv1.AgentServiceClient {
	c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+c.Fleet.Address(), grpc.WithDisableRetry(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			MinVersion: tls.VersionTLS13, RootCAs: c.roots(), Certificates: []tls.Certificate{cert},
		})))
	if err != nil {
		c.t.Fatalf("connect: %v", err)
	}
	c.t.Cleanup(func() { conn.Close() })
	return fleetv1.NewAgentServiceClient(conn)
}

// EnrollClient speaks enroll.v1.
func (c *Cluster) EnrollClient() enrollv1.EnrollmentServiceClient {
	c.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+c.Enrolment.Address(), grpc.WithDisableRetry(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: c.roots()})))
	if err != nil {
		c.t.Fatalf("connect: %v", err)
	}
	c.t.Cleanup(func() { conn.Close() })
	return enrollv1.NewEnrollmentServiceClient(conn)
}
