package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	key := newKey(t)
	return authority{sign(t, tmpl, tmpl, key, key), key}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, tmpl, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, tmpl, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// serve starts a server for 127.0.0.1 that answers GetServerInfo with the authorization that it was sent.
func (a authority) serve(t *testing.T) string {
	t.Helper()
	key := newKey(t)
	leaf := sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, a.cert, key, a.key)
	srv := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Raw, a.cert.Raw}, PrivateKey: key}},
	})))
	pb.RegisterAdminServiceServer(srv, echo{})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g, _ := task.New(context.Background())
	g.Go("serve", func(context.Context) error { return srv.Serve(listener) })
	t.Cleanup(func() {
		srv.Stop()
		if err := g.Wait(); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serve: %v", err)
		}
	})
	return listener.Addr().String()
}

type echo struct {
	pb.UnimplementedAdminServiceServer
}

func (echo) GetServerInfo(ctx context.Context, _ *pb.GetServerInfoRequest) (*pb.ServerInfo, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	return &pb.ServerInfo{Version: strings.Join(md.Get("authorization"), ",")}, nil
}

func ask(t *testing.T, target Target) (string, error) {
	t.Helper()
	conn, err := Dial(target)
	if err != nil {
		return "", err
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	info, err := pb.NewAdminServiceClient(conn).GetServerInfo(t.Context(), &pb.GetServerInfoRequest{})
	return info.GetVersion(), err
}

func TestDialTrustsTheCAFileOrThePin(t *testing.T) {
	ca, stranger := newAuthority(t), newAuthority(t)
	addr := ca.serve(t)
	pemOf := func(a authority) string {
		return write(t, t.TempDir(), "ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})))
	}
	hashOf := func(a authority) string {
		sum := sha256.Sum256(a.cert.Raw)
		return hex.EncodeToString(sum[:])
	}
	for _, good := range []Target{{CAFile: pemOf(ca)}, {CAHash: hashOf(ca)},
		{CAHash: "sha256:" + strings.ToUpper(hashOf(ca))}} {
		good.Server, good.Token = addr, "t0ken"
		if got, err := ask(t, good); err != nil || got != "Bearer t0ken" {
			t.Errorf("%+v: authorization %q, %v", good, got, err)
		}
	}
	for _, bad := range []Target{{CAFile: pemOf(stranger)}, {CAHash: hashOf(stranger)}, {}} {
		bad.Server, bad.Token = addr, "t0ken"
		_, err := ask(t, bad)
		if status.Code(err) != codes.Unavailable || apiclient.Transient(err) {
			t.Errorf("%+v: %v; want a refusal that is not repeated", bad, err)
		}
	}
}

func TestDialRefusesBadTargets(t *testing.T) {
	for _, bad := range []Target{
		{Server: "no-port"}, {Server: "h:1", CAHash: "abc"}, {Server: "h:1", CAFile: "/no/such/file"},
		{Server: "h:1", CAFile: write(t, t.TempDir(), "ca.pem", "not PEM")},
	} {
		if conn, err := Dial(bad); err == nil {
			t.Errorf("%+v was taken: %v", bad, conn.Target())
		}
	}
}

func TestTokenIsNotPrinted(t *testing.T) {
	if got := fmt.Sprintf("%v %s", bearer("s3cret"), bearer("s3cret")); strings.Contains(got, "s3cret") {
		t.Error(got)
	}
}

// stuck is a clock whose waits pass at once, and add up.
type stuck struct {
	clock.Clock
	now *time.Time
}

func (s stuck) Now() time.Time { return *s.now }

func (s stuck) After(d time.Duration) <-chan time.Time {
	*s.now = s.now.Add(d)
	c := make(chan time.Time, 1)
	c <- *s.now
	return c
}

func TestRetry(t *testing.T) {
	lost := status.Error(codes.Unavailable, "gone")
	cases := map[string]struct {
		method      string
		errs        []error
		calls, told int
		code        codes.Code
	}{
		"comes back": {pb.MachineService_RebootMachine_FullMethodName, []error{lost, lost, nil}, 3, 1, codes.OK},
		"refused": {pb.MachineService_RebootMachine_FullMethodName, []error{status.Error(codes.NotFound, "")}, 1,
			0, codes.NotFound},
		"not to be repeated": {pb.AdminService_IssueBootstrapToken_FullMethodName, []error{lost}, 1, 0, codes.Unavailable},
	}
	for name, c := range cases {
		now := time.Unix(0, 0)
		calls, told := 0, 0
		retry := Retry(RetryConfig{Clock: stuck{now: &now}, For: time.Minute, OnRetry: func(error) { told++ }})
		err := retry(t.Context(), c.method, nil, nil, nil,
			func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
				calls++
				return c.errs[calls-1]
			})
		if calls != c.calls || told != c.told || status.Code(err) != c.code {
			t.Errorf("%s: %d calls, told %d times, %v", name, calls, told, err)
		}
	}
}

func TestRetryGivesUp(t *testing.T) {
	now := time.Unix(0, 0)
	retry := Retry(RetryConfig{Clock: stuck{now: &now}, For: 10 * time.Second, OnRetry: func(error) {}})
	err := retry(t.Context(), "/x/Get", nil, nil, nil,
		func(context.Context, string, any, any, *grpc.ClientConn, ...grpc.CallOption) error {
			return status.Error(codes.Unavailable, "gone")
		})
	if took := now.Sub(time.Unix(0, 0)); status.Code(err) != codes.Unavailable || took > 10*time.Second ||
		took < 4*time.Second {
		t.Errorf("gave up after %v with %v", took, err)
	}
}
