//go:build console

package console

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ingot-metal/ingot/agent/transport"
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	enrollv1 "github.com/ingot-metal/ingot/api/enroll/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/lab/harness"
)

const (
	siteName = "berlin"
	bmc      = "10.77.0.9"
)

// site has an agent enrol for a site, which reports leases, unknown machines, and a BMC whose certificate has changed.
func (r *rig) site() {
	r.t.Helper()
	harness.Must(r.t, r.c.Admin().SetSite, &pb.SetSiteRequest{Site: siteName, Segments: []*pb.Segment{{
		Name: "boot", Interface: "eth1", Address: "10.77.0.1/24", PoolStart: "10.77.0.10", PoolEnd: "10.77.0.20",
	}}})
	r.c.Register(&pb.Machine{MachineId: "with-bmc", Spec: &pb.MachineSpec{Site: siteName, BmcEndpoint: bmc}})
	agent := r.siteAgent()
	report := &fleetv1.SyncSiteRequest{
		LeasesChanged: true,
		Leases: []*fleetv1.SiteLease{{Segment: "boot", MacAddress: "52:54:00:aa:00:10", Address: "10.77.0.10",
			ExpiresAt: timestamppb.New(time.Now().Add(time.Hour)), Hostname: "somebody"}},
		Segments: []*fleetv1.SegmentObservation{{Segment: "boot", State: "up", PoolSize: 11, PoolUsed: 4}},
		Bmcs: []*fleetv1.BMCObservation{{MachineId: "with-bmc", Endpoint: bmc, Reachable: true, SeenAt: timestamppb.Now(),
			CertificateSha256: strings.Repeat("cd", 32), OfferedCertificateSha256: strings.Repeat("ab", 32)}},
	}
	for i := range 3 {
		report.Unknown = append(report.Unknown, &fleetv1.UnknownMachine{Segment: "boot", Arch: "uefi-x64",
			MacAddress: fmt.Sprintf("52:54:00:aa:00:%02x", 16+i), Address: fmt.Sprintf("10.77.0.%d", 10+i),
			SeenAt: timestamppb.Now()})
	}
	if _, err := agent.SyncSite(r.t.Context(), report); err != nil {
		r.t.Fatalf("report what the site's agent sees: %v", err)
	}
}

// siteAgent enrols, and opens the session that reports need. Heartbeats keep it until the test ends.
func (r *rig) siteAgent() fleetv1.AgentServiceClient {
	r.t.Helper()
	bundle, err := pki.ParseBundle(r.c.IssueToken(&pb.IssueBootstrapTokenRequest{
		Role: pb.AgentRole_AGENT_ROLE_SITE, Site: siteName}))
	r.check(err)
	key, err := pki.NewKey()
	r.check(err)
	csr, err := pki.NewCSR(key, "")
	r.check(err)
	got, err := enrollv1.NewEnrollmentServiceClient(r.dial(r.c.Addresses().Enrolment)).Enroll(r.t.Context(),
		&enrollv1.EnrollRequest{TokenId: bundle.TokenID, TokenSecret: bundle.Secret, Csr: csr})
	r.check(err)
	chain, err := pki.DecodeCerts(got.GetCertificateChainPem())
	r.check(err)
	cert := tls.Certificate{PrivateKey: key, Leaf: chain[0]}
	for _, c := range chain {
		cert.Certificate = append(cert.Certificate, c.Raw)
	}
	agent := fleetv1.NewAgentServiceClient(r.dial(r.c.Addresses().Fleet, cert))
	stream, err := agent.Commands(r.t.Context())
	r.check(err)
	r.check(stream.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Hello{Hello: &fleetv1.Hello{
		Version: "test", Roles: []string{"site"}, Capabilities: []string{"netboot", "power"}, BootId: "boot-1",
		StateId: "state-1"}}}))
	welcome, err := stream.Recv()
	r.check(err)
	events, err := agent.Events(r.t.Context())
	r.check(err)
	w := welcome.GetWelcome()
	r.check(events.Send(&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Hello{Hello: &fleetv1.EventsHello{
		SessionId: w.GetSessionId(), Epoch: w.GetEpoch(), StateId: "state-1"}}}))
	go func() {
		for events.Send(&fleetv1.EventsRequest{Message: &fleetv1.EventsRequest_Heartbeat{Heartbeat: &fleetv1.Heartbeat{
			Ts: timestamppb.Now(), BootId: "boot-1"}}}) == nil {
			select {
			case <-time.After(time.Second):
			case <-events.Context().Done():
			}
		}
	}()
	return agent
}

func (r *rig) dial(address string, certs ...tls.Certificate) *transport.Conn {
	r.t.Helper()
	root, err := os.ReadFile(r.c.CAFile())
	r.check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(root)
	conn, err := transport.Dial(address, &tls.Config{RootCAs: pool, Certificates: certs, MinVersion: tls.VersionTLS13,
		ServerName: "localhost"}, transport.NetDialer(), transport.Patience)
	r.check(err)
	r.t.Cleanup(func() { conn.Close() })
	return conn
}

func (r *rig) check(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}
