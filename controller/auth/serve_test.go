package auth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/obs"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// authority is a CA of the test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{}
	template := &x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	a.cert, a.key = a.sign(t, template)
	return a
}

// sign makes a certificate; the first one signs itself.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "test"}
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, parentKey := a.cert, a.key
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *authority) server(t *testing.T) tls.Certificate {
	cert, key := a.sign(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

func (a *authority) client(t *testing.T, uris ...*url.URL) *tls.Certificate {
	cert, key := a.sign(t, &x509.Certificate{URIs: uris, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// serve runs a server with the interceptors in the controller's order and returns a client over TLS.
func serve(
	t *testing.T, logger *slog.Logger, guard *auth.Guard, mtls bool, register func(*grpc.Server),
) *grpc.ClientConn {
	ca := newAuthority(t)
	dial := serveWith(t, ca, logger, guard, mtls, register)
	return dial(nil)
}

func serveWith(
	t *testing.T, ca *authority, logger *slog.Logger, guard *auth.Guard, mtls bool, register func(*grpc.Server),
) func(*tls.Certificate) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conf := &tls.Config{Certificates: []tls.Certificate{ca.server(t)}, ClientCAs: ca.pool(), MinVersion: tls.VersionTLS13}
	if mtls {
		conf.ClientAuth = tls.VerifyClientCertIfGiven // so that the guard's own refusal is seen
	}
	calls, errs := obs.CallLog{Logger: logger}, failure.Interceptor{Logger: logger}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(conf)),
		grpc.ChainUnaryInterceptor(calls.Unary(), errs.Unary(), guard.Unary()),
		grpc.ChainStreamInterceptor(calls.Stream(), errs.Stream(), guard.Stream()))
	register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return func(cert *tls.Certificate) *grpc.ClientConn {
		conf := &tls.Config{RootCAs: ca.pool(), MinVersion: tls.VersionTLS13}
		if cert != nil {
			conf.Certificates = []tls.Certificate{*cert}
		}
		conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(conf)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

type fleet struct {
	fleetv1.UnimplementedAgentServiceServer
	seen chan string
}

func (f fleet) RotateAgentCert(
	ctx context.Context, _ *fleetv1.RotateAgentCertRequest,
) (*fleetv1.RotateAgentCertResponse, error) {
	agent, ok := auth.AgentFrom(ctx)
	if !ok || agent.Cert == nil {
		return nil, errors.New("no agent")
	}
	f.seen <- agent.ID
	return &fleetv1.RotateAgentCertResponse{}, nil
}

func (f fleet) Events(ss fleetv1.AgentService_EventsServer) error {
	agent, _ := auth.AgentFrom(ss.Context())
	f.seen <- agent.ID
	return nil
}

type enrolment struct {
	enrollv1.UnimplementedEnrollmentServiceServer
}

func (enrolment) Enroll(context.Context, *enrollv1.EnrollRequest) (*enrollv1.EnrollResponse, error) {
	return &enrollv1.EnrollResponse{}, nil
}

func rotate(t *testing.T, conn *grpc.ClientConn) error {
	_, err := fleetv1.NewAgentServiceClient(conn).RotateAgentCert(t.Context(), &fleetv1.RotateAgentCertRequest{})
	return err
}

func TestFleetNeedsAnAgentsCertificate(t *testing.T) {
	ca, f := newAuthority(t), fleet{seen: make(chan string, 2)}
	revoked := ids.New(ids.Agent)
	guard := auth.NewGuard(auth.GuardConfig{
		Listener: auth.Fleet,
		CheckAgent: func(_ context.Context, id string, _ *x509.Certificate) error {
			if id == revoked {
				return failure.Unauthenticated("CERTIFICATE_REVOKED", "revoked")
			}
			return nil
		},
	})
	dial := serveWith(t, ca, testkit.Logger(t), guard, true, func(s *grpc.Server) {
		fleetv1.RegisterAgentServiceServer(s, f)
		enrollv1.RegisterEnrollmentServiceServer(s, enrolment{}) // a mistake that the guard must make good
	})
	id := ids.New(ids.Agent)
	conn := dial(ca.client(t, pki.AgentURI(id)))
	if err := rotate(t, conn); err != nil || <-f.seen != id {
		t.Errorf("an agent: %v", err)
	}
	stream, err := fleetv1.NewAgentServiceClient(conn).Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := <-f.seen; got != id {
		t.Errorf("the stream's agent is %q", got)
	}
	_, _ = stream.Recv() // its end
	wantReason(t, "no certificate", rotate(t, dial(nil)), codes.Unauthenticated, "CERTIFICATE_REQUIRED")
	wantReason(t, "no identity", rotate(t, dial(ca.client(t))), codes.Unauthenticated, "CERTIFICATE_REQUIRED")
	wantReason(t, "revoked", rotate(t, dial(ca.client(t, pki.AgentURI(revoked)))), codes.Unauthenticated,
		"CERTIFICATE_REVOKED")
	_, err = enrollv1.NewEnrollmentServiceClient(conn).Enroll(t.Context(), &enrollv1.EnrollRequest{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("enrolment on the fleet listener: %v", err)
	}
}

func TestEnrolmentNeedsNothingButTLS(t *testing.T) {
	guard := auth.NewGuard(auth.GuardConfig{Listener: auth.Enrolment})
	conn := serve(t, testkit.Logger(t), guard, false, func(s *grpc.Server) {
		enrollv1.RegisterEnrollmentServiceServer(s, enrolment{})
		s.RegisterService(&grpc.ServiceDesc{
			ServiceName: "ingot.test.Forgotten", HandlerType: (*any)(nil),
			Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: forgotten}},
		}, struct{}{})
	})
	if _, err := enrollv1.NewEnrollmentServiceClient(conn).Enroll(t.Context(), &enrollv1.EnrollRequest{}); err != nil {
		t.Errorf("Enroll: %v", err)
	}
	// A registered method that is not in the table is refused.
	err := conn.Invoke(t.Context(), "/ingot.test.Forgotten/Call", &enrollv1.EnrollRequest{}, &enrollv1.EnrollResponse{})
	wantReason(t, "a forgotten method", err, codes.PermissionDenied, "SCOPE_TOO_SMALL")
}

func forgotten(_ any, ctx context.Context, dec func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
	in := &enrollv1.EnrollRequest{}
	if err := dec(in); err != nil {
		return nil, err
	}
	return intercept(ctx, in, &grpc.UnaryServerInfo{FullMethod: "/ingot.test.Forgotten/Call"},
		func(context.Context, any) (any, error) { return &enrollv1.EnrollResponse{}, nil })
}
