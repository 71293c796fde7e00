package bmc_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

const user, password = "admin", "s3cret-bmc"

func TestMain(m *testing.M) {
	lab.MainIfControl()
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}

func newChassis(on bool) *lab.Memory {
	c := &lab.Memory{Info: lab.About{
		Name: "m-1", UUID: "6f1d2c3b-0000-4000-8000-0123456789ab", Serial: "LAB-1", MACs: []string{"52:54:00:00:00:01"},
		UEFI: true,
	}}
	if on {
		_ = c.SetPower(context.Background(), lab.PowerOn) // a memory has no errors
	}
	return c
}

func startRedfish(t testing.TB, c lab.Chassis) *lab.Redfish {
	t.Helper()
	r, err := lab.StartRedfish(t.Context(), lab.RedfishConfig{Chassis: c, Listen: "127.0.0.1:0", User: user,
		Password: password})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func startIPMI(t testing.TB, c lab.Chassis) *lab.IPMI {
	t.Helper()
	s, err := lab.StartIPMI(t.Context(), lab.IPMIConfig{
		Chassis: c, Dir: testkit.TempDir(t), Addr: netip.MustParseAddrPort("127.0.0.1:0"), User: user, Password: password,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// safe is where the credentials of a test come from.
type safe struct {
	mu    sync.Mutex
	creds bmc.Credentials
	asked int
}

func (s *safe) get(context.Context, provider.Target) (bmc.Credentials, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return s.creds, nil
}

func (s *safe) set(password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.creds.Password = password
	s.creds.Version++
}

// allow replaces the allowance, as a new version of the credentials.
func (s *safe) allow(endpoints ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.creds.Allowed = endpoints
	s.creds.Version++
}

func newSafe(password string) *safe {
	return &safe{creds: bmc.Credentials{
		Username: user, Password: password, Version: 1, PlainHTTP: true,
		Allowed: []string{"127.0.0.0/8", "192.0.2.0/24", "::1", "localhost"},
	}}
}

// newProvider is as patient as tests are.
func newProvider(t testing.TB, s *safe, change func(*bmc.Config)) *bmc.Provider {
	t.Helper()
	cfg := bmc.Config{
		Credentials: s.get, Clock: clock.Real(), Log: testkit.Logger(t),
		Timeout: 10 * time.Second, SoftOff: time.Second, Within: 5 * time.Second,
	}
	if change != nil {
		change(&cfg)
	}
	p := bmc.New(cfg)
	t.Cleanup(func() { p.Close(context.Background()) })
	return p
}

func target(endpoint string) provider.Target {
	return provider.Target{MachineID: "m-1", BMCEndpoint: endpoint, CredentialsRef: "rack-1",
		MACs: []string{"52:54:00:00:00:01"}}
}

func cause(command string) effect.Cause {
	return effect.Cause{CommandID: command, OperationID: "op-" + command, MachineID: "m-1", Attempt: 1}
}

// replaceRedfish stops old and starts another service, with another certificate, at its address.
func replaceRedfish(t *testing.T, old *lab.Redfish, c lab.Chassis, addr string) *lab.Redfish {
	t.Helper()
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := lab.StartRedfish(t.Context(), lab.RedfishConfig{Chassis: c, Listen: addr, User: user, Password: password})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func startIPMIAt(t *testing.T, c lab.Chassis, addr string) *lab.IPMI {
	t.Helper()
	s, err := lab.StartIPMI(t.Context(), lab.IPMIConfig{
		Chassis: c, Dir: testkit.TempDir(t), Addr: netip.MustParseAddrPort(addr), User: user, Password: password,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// signedCertificate makes an authority and a certificate of it for one address.
func signedCertificate(t *testing.T, address string) (*x509.CertPool, tls.Certificate) {
	t.Helper()
	issue := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if parent == nil {
			parent, signer = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return cert, key
	}
	now := time.Now()
	ca, caKey := issue(&x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "BMC authority"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, nil)
	leaf, key := issue(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "bmc"}, NotBefore: now.Add(-time.Hour),
		NotAfter:    now.Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(address)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, caKey)
	roots := x509.NewCertPool()
	roots.AddCert(ca)
	return roots, tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}
}
