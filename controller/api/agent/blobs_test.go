package agent

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/ca"
	"github.com/ingot-metal/ingot/controller/catalog/blob"
	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// rig serves the fleet listener's calls over TLS on loopback. The test sets the caller: the handshake has its own
// tests.
type rig struct {
	fleetv1.AgentServiceClient
	store *store.Store
	blobs *blob.Dir
	box   *secret.Box
	log   *testkit.Buffer
	who   *auth.Agent
	cfg   *Config
}

func newRig(t testing.TB, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{store: storetest.New(t), log: &testkit.Buffer{}}
	var err error
	if r.blobs, err = blob.Open(blob.Config{Path: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if r.box, err = secret.New(bytes.Repeat([]byte{9}, secret.KeySize)); err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Store: Stores{
			Agents: r.store.Agents, Credentials: r.store.Credentials, Identities: r.store.Identities,
			Operations: r.store.Operations, Sessions: r.store.Sessions, Sites: r.store.Sites,
		},
		Blobs: r.blobs, Secrets: r.box, Clock: clock.Real(), Logger: testkit.Logger(t),
		Draining: context.Background(),
	}
	for _, c := range change {
		c(&cfg)
	}
	r.cfg = &cfg
	r.AgentServiceClient = fleetv1.NewAgentServiceClient(r.serve(t, New(cfg)))
	return r
}

func (r *rig) serve(t testing.TB, s *Server) *grpc.ClientConn {
	t.Helper()
	authority, err := ca.New(ca.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	certs, err := ca.NewServerCerts(t.Context(), authority, []string{"localhost"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	errs := failure.Interceptor{Logger: testkit.Logger(t)}
	server := grpc.NewServer(
		grpc.Creds(credentials.NewTLS(&tls.Config{GetCertificate: certs.GetCertificate, MinVersion: tls.VersionTLS13})),
		grpc.ReadBufferSize(0), // as on the real listener
		grpc.ChainUnaryInterceptor(errs.Unary(), func(ctx context.Context, req any, _ *grpc.UnaryServerInfo,
			next grpc.UnaryHandler) (any, error) {
			return next(r.as(ctx), req)
		}),
		grpc.ChainStreamInterceptor(errs.Stream(), func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo,
			next grpc.StreamHandler) error {
			return next(srv, known{ss, r.as(ss.Context())})
		}),
	)
	fleetv1.RegisterAgentServiceServer(server, s)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	task.Background("serve", func() { defer close(done); _ = server.Serve(l) })
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		RootCAs: authority.Roots(), ServerName: "localhost", MinVersion: tls.VersionTLS13,
	})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); server.Stop(); <-done })
	return conn
}

func (r *rig) as(ctx context.Context) context.Context {
	if r.who == nil {
		return ctx
	}
	return auth.WithAgent(ctx, *r.who)
}

type known struct {
	grpc.ServerStream
	ctx context.Context
}

func (k known) Context() context.Context { return k.ctx }

// enrol makes an agent on record; its certificate is only a name for one.
func (r *rig) enrol(t testing.TB, n agentstore.NewToken) *auth.Agent {
	t.Helper()
	now := time.Now()
	n.TokenID, n.Secret, n.Actor, n.ExpiresAt = "t-"+n.Role+n.Site, "secret", "tester", now.Add(time.Hour)
	if _, err := r.store.Agents.IssueToken(t.Context(), n, now); err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{Raw: []byte("certificate of " + n.TokenID)}
	got, err := r.store.Agents.Enroll(t.Context(), agentstore.EnrollRequest{TokenID: n.TokenID, Secret: n.Secret,
		PublicKeyDigest: []byte(n.TokenID)},
		func(context.Context, string) (*agentstore.Signed, error) {
			return &agentstore.Signed{
				Fingerprint: pki.Fingerprint(cert.Raw), Serial: "1", ChainPEM: []byte("chain"), NotBefore: now,
				NotAfter: now.Add(time.Hour),
			}, nil
		}, now)
	if err != nil {
		t.Fatal(err)
	}
	return &auth.Agent{ID: got.AgentID, Cert: cert}
}

func (r *rig) put(t testing.TB, content []byte) string {
	t.Helper()
	w, err := r.blobs.Create()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() //nolint:errcheck // placed below
	if _, err := w.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := w.Place(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w.SHA256()
}

// fetch reads a blob from an offset to its end, and returns the announced size.
func (r *rig) fetch(ctx context.Context, sum string, offset int64, into io.Writer) (size int64, err error) {
	stream, err := r.FetchBlob(ctx, &fleetv1.FetchBlobRequest{Sha256: sum, Offset: offset})
	if err != nil {
		return 0, err
	}
	for first := true; ; first = false {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return size, nil
		}
		if err != nil {
			return size, err
		}
		if first {
			size = m.GetSize()
		}
		if _, err := into.Write(m.GetData()); err != nil {
			return size, err
		}
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

func reasonOf(err error) string { return failure.ReasonOf(err) }

func TestFetchBlob(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.who = r.enrol(t, agentstore.NewToken{Role: "site", Site: "default"})
	for _, n := range []int{0, 1, blobChunk - 1, blobChunk, blobChunk + 1, 3*blobChunk + 17} {
		content := random(n)
		sum := r.put(t, content)
		for _, offset := range []int{0, n / 2, n} {
			var got bytes.Buffer
			size, err := r.fetch(t.Context(), sum, int64(offset), &got)
			if err != nil || size != int64(n) || !bytes.Equal(got.Bytes(), content[offset:]) {
				t.Errorf("%d bytes from %d: size %d, %d bytes, %v", n, offset, size, got.Len(), err)
			}
		}
	}
	sum := r.put(t, []byte("hello"))
	for _, c := range []struct {
		sum    string
		offset int64
		reason string
	}{
		{sum, -1, "INVALID_FIELD"}, {sum, 6, "INVALID_FIELD"}, {"", 0, "BLOB_NOT_FOUND"}, {"../" + sum, 0, "BLOB_NOT_FOUND"},
		{"00" + sum[2:], 0, "BLOB_NOT_FOUND"},
	} {
		if _, err := r.fetch(t.Context(), c.sum, c.offset, io.Discard); reasonOf(err) != c.reason {
			t.Errorf("%q from %d: %v", c.sum, c.offset, err)
		}
	}
}

func TestWhoFetchesBlobs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sum := r.put(t, []byte("hello"))
	if _, err := r.store.Machines.Register(t.Context(), &pb.Machine{MachineId: "m-1"}, "tester", time.Now()); err != nil {
		t.Fatal(err)
	}
	for reason, who := range map[string]*auth.Agent{
		"":                     r.enrol(t, agentstore.NewToken{Role: "host", MachineID: "m-1"}),
		"CERTIFICATE_REQUIRED": nil,
		"SCOPE_TOO_SMALL":      {ID: "a-no", Cert: &x509.Certificate{}},
	} {
		r.who = who
		if _, err := r.fetch(t.Context(), sum, 0, io.Discard); reasonOf(err) != reason {
			t.Errorf("%v, want %q", err, reason)
		}
	}
}

// stepClock jumps by a step every time that it is asked.
type stepClock struct {
	clock.Clock
	step time.Duration
	at   time.Time
}

func (c *stepClock) Now() time.Time {
	c.at = c.at.Add(c.step)
	return c.at
}

func TestALongTransferEndsWithItsRight(t *testing.T) {
	t.Parallel()
	draining, drain := context.WithCancel(t.Context())
	r := newRig(t, func(c *Config) {
		c.Clock, c.Draining = &stepClock{Clock: clock.Real(), step: blobRecheck, at: time.Now()}, draining
	})
	r.who = r.enrol(t, agentstore.NewToken{Role: "site", Site: "default"})
	sum := r.put(t, random(8*blobChunk))
	if _, err := r.fetch(t.Context(), sum, 0, io.Discard); err != nil {
		t.Fatal(err)
	}
	// The first chunk that arrives takes the right away; the stream is far from its end, as the windows are small.
	revoke := writerFunc(func() error {
		_, err := r.store.Agents.RevokeAgent(t.Context(), r.who.ID, "", "tester", "lost", time.Now())
		return err
	})
	big := r.put(t, random(64<<20))
	if _, err := r.fetch(t.Context(), big, 0, revoke); reasonOf(err) != "CERTIFICATE_REVOKED" {
		t.Errorf("%v", err)
	}
	drain()
	if _, err := r.fetch(t.Context(), sum, 0, io.Discard); reasonOf(err) != "CONTROLLER_DRAINING" {
		t.Errorf("%v", err)
	}
}

// writerFunc calls the function at the first write.
func writerFunc(first func() error) io.Writer { return &callOnce{first: first} }

type callOnce struct {
	first func() error
	done  bool
}

func (c *callOnce) Write(p []byte) (int, error) {
	if c.done {
		return len(p), nil
	}
	c.done = true
	return len(p), c.first()
}

func TestCredentialsReachTheSiteAgent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	spec := &pb.MachineSpec{Site: "lab", BmcEndpoint: "10.0.0.7", BmcCredentialsRef: "rack"}
	if _, err := r.store.Machines.Register(t.Context(), &pb.Machine{MachineId: "m-1", Spec: spec}, "tester",
		time.Now()); err != nil {
		t.Fatal(err)
	}
	set := func(sealed []byte) {
		t.Helper()
		if _, err := r.store.Credentials.SetCredentials(t.Context(),
			credential.Change{Ref: "rack", Sealed: sealed, Allowed: []string{"10.0.0.0/24"}}, "tester",
			time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	get := func(machine, ref string) (*fleetv1.GetBMCCredentialsResponse, error) {
		return r.GetBMCCredentials(t.Context(), &fleetv1.GetBMCCredentialsRequest{MachineId: machine, CredentialsRef: ref})
	}
	set(r.box.SealBMC("rack", secret.BMC{Username: "admin", Password: "hunter2"}))
	if _, err := get("m-1", "rack"); reasonOf(err) != "CERTIFICATE_REQUIRED" {
		t.Errorf("without a certificate: %v", err)
	}
	r.who = r.enrol(t, agentstore.NewToken{Role: "site", Site: "lab"})
	got, err := get("m-1", "rack")
	if err != nil || got.GetUsername() != "admin" || got.GetPassword() != "hunter2" || got.GetVersion() != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := get("m-1", "other"); reasonOf(err) != "CREDENTIALS_NOT_FOUND" {
		t.Errorf("another name: %v", err)
	}
	lost, err := secret.New(bytes.Repeat([]byte{1}, secret.KeySize))
	if err != nil {
		t.Fatal(err)
	}
	for name, sealed := range map[string][]byte{
		"lost key": lost.SealBMC("rack", secret.BMC{Username: "u", Password: "p"}),
		"moved":    r.box.SealBMC("other", secret.BMC{}), "rubbish": []byte("x"),
	} {
		set(sealed)
		if _, err := get("m-1", "rack"); reasonOf(err) != "CREDENTIALS_NOT_FOUND" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// BenchmarkFetchBlob is one reader over TLS on loopback, client and server in this process.
func BenchmarkFetchBlob(b *testing.B) {
	r := newRig(b)
	r.who = r.enrol(b, agentstore.NewToken{Role: "site", Site: "default"})
	const size = 256 << 20
	sum := r.put(b, random(size))
	for _, readers := range []int{1, 8} {
		b.Run(fmt.Sprint(readers), func(b *testing.B) {
			b.SetBytes(int64(readers) * size)
			b.ReportAllocs()
			for b.Loop() {
				g, ctx := task.New(b.Context())
				for range readers {
					g.Go("reader", func(context.Context) error {
						_, err := r.fetch(ctx, sum, 0, io.Discard)
						return err
					})
				}
				if err := g.Wait(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
