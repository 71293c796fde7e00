package lab_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"regexp"

	"github.com/ingot-metal/ingot/agent/site/installerenrol"
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/network"
)

// bare is a machine without a computer in it: its BMC is real, and its network card does what a test makes it do.
type bare struct {
	*site
	id, mac string
	chassis *bmc.Memory
	redfish *bmc.Redfish
	card    string
	address string
	ns      *network.Namespace
}

// bare registers a machine, in maintenance and switched off.
func (s *site) bare(n int, change func(*pb.MachineSpec)) *bare {
	s.Helper()
	b := &bare{site: s, id: fmt.Sprintf("bare-%d", n), mac: fmt.Sprintf("52:54:00:ba:4e:%02x", n),
		card: fmt.Sprintf("bare%d", n)}
	b.chassis = &bmc.Memory{Info: bmc.About{Name: b.id, MACs: []string{b.mac}}}
	address := netip.AddrFrom4([4]byte{198, 51, 100, byte(100 + n)})
	if err := s.lab.SiteNetwork().Address("lo", netip.PrefixFrom(address, address.BitLen())); err != nil {
		s.Fatal(err)
	}
	listener, err := s.lab.SiteNetwork().Listen(netip.AddrPortFrom(address, 443).String())
	if err != nil {
		s.Fatal(err)
	}
	b.redfish, err = bmc.StartRedfish(s.ctx, bmc.RedfishConfig{Chassis: b.chassis, Listener: listener,
		User: metal.Username, Password: metal.Password})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := b.redfish.Close(); err != nil {
			s.Error(err)
		}
	})
	spec := &pb.MachineSpec{
		MacAddresses: []string{b.mac}, Site: metal.SiteName, BmcEndpoint: b.redfish.Endpoint(),
		BmcCredentialsRef: metal.CredentialsRef,
	}
	if change != nil {
		change(spec)
	}
	if _, err := s.api.Machines.RegisterMachine(s.ctx,
		&pb.RegisterMachineRequest{Machine: &pb.Machine{MachineId: b.id, Spec: spec}}); err != nil {
		s.Fatal(err)
	}
	s.maintain(b.id)
	return b
}

// sentIn begins to install the machine, and returns when its BMC has switched it on and nothing but the installer is
// waited for.
func (b *bare) sentIn() *pb.Operation {
	b.Helper()
	op := b.reimage(b.id, "in")
	return b.await(op, nil, "waits for the installer",
		func(op *pb.Operation) bool { return op.GetWaitReason() == "WAITING_FOR_INSTALLER" })
}

// plug puts the machine's network card into the segment.
func (b *bare) plug(mac string) {
	b.Helper()
	hardware, err := net.ParseMAC(mac)
	if err != nil {
		b.Fatal(err)
	}
	if b.ns, err = network.New(); err != nil {
		b.Fatal(err)
	}
	// The address stands for none: DHCP assigns one.
	err = errors.Join(b.lab.Switch().Card(b.ns, b.card, netip.MustParsePrefix("169.254.7.7/32")),
		b.ns.SetMAC(b.card, hardware))
	b.Cleanup(func() {
		if err := errors.Join(b.ns.Remove(b.card), b.ns.Close()); err != nil {
			b.Error(err)
		}
	})
	if err != nil {
		b.Fatal(err)
	}
}

// asks for an address, and takes it if one is given.
func (b *bare) asks() (address string) {
	b.Helper()
	cmd := b.ns.Command(b.ctx, "busybox", "udhcpc", "-i", b.card, "-n", "-q", "-f", "-t", "3", "-T", "1", "-s",
		"/bin/true")
	out, err := cmd.CombinedOutput()
	found := leaseOf.FindSubmatch(out)
	if err != nil || found == nil {
		return ""
	}
	if address = string(found[1]); address == b.address {
		return address
	}
	b.address = address
	if err := b.ns.Address(b.card, netip.PrefixFrom(netip.MustParseAddr(address), 24)); err != nil {
		b.Fatal(err)
	}
	return address
}

var leaseOf = regexp.MustCompile(`lease of (\S+) obtained`)

// says sends an HTTP request to the site from the machine's card, and returns the answer's body.
func (b *bare) says(method, path, body string) string {
	b.Helper()
	conn, err := b.ns.Dial(b.ctx, net.JoinHostPort(metal.SiteAddress, "8080"))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // everything was read
	_, err = fmt.Fprintf(conn,
		"%s %s HTTP/1.1\r\nHost: site\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, path, len(body), body)
	if err != nil {
		b.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		b.Fatal(err)
	}
	_, text, _ := bytes.Cut(answer, []byte("\r\n\r\n"))
	return string(text)
}

// enrols asks with a new key to be certified for the machine's operation, and returns the answer.
func (b *bare) enrols() string {
	b.Helper()
	script := b.says("GET", "/boot/auto.ipxe?mac="+b.mac+"&arch=x86_64", "")
	found := scriptURL.FindStringSubmatch(script)
	if found == nil {
		b.Fatalf("no boot URL in the script:\n%s", script)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		b.Fatal(err)
	}
	body, err := json.Marshal(installerenrol.Request{CSR: csr, BootID: "11111111-2222-4333-8444-555555555555", MAC: b.mac})
	if err != nil {
		b.Fatal(err)
	}
	return b.says("POST", "/boot/"+found[1]+"/enrol", string(body))
}

// segments changes the site's one segment, and waits until its agent has taken it over.
func (s *site) segments(change func(*pb.Segment)) {
	s.Helper()
	was, err := s.api.Admin.GetSite(s.ctx, &pb.GetSiteRequest{Site: metal.SiteName})
	if err != nil {
		s.Fatal(err)
	}
	segment := was.GetSegments()[0]
	segment.State, segment.ForeignDhcpServer, segment.PoolSize, segment.PoolUsed = "", "", 0, 0
	change(segment)
	set, err := s.api.Admin.SetSite(s.ctx, &pb.SetSiteRequest{Site: metal.SiteName, Segments: []*pb.Segment{segment}})
	if err != nil {
		s.Fatal(err)
	}
	testkit.Eventually(s.T, cycle, func() bool {
		now, err := s.api.Admin.GetSite(s.ctx, &pb.GetSiteRequest{Site: metal.SiteName})
		return err == nil && now.GetAppliedRevision() >= set.GetRevision()
	}, "the site's agent does not take its segments over")
}
