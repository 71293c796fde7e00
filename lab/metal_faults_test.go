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
	"net/http"
	"net/netip"
	"regexp"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/site/desk"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/chassis"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/network"
	"github.com/ingot-metal/ingot/lab/vm"
)

// slow gives a test some seconds in the middle of a write.
const slow = 3 << 20

// slowMachine is one with a BIOS whose disk takes its time.
func (s *site) slowMachine() *metal.Machine {
	s.Helper()
	return s.machine(metal.MachineConfig{
		Firmware: vm.BIOS, BMC: metal.Redfish, Disks: []chassis.Disk{{Serial: "slow-d0", Bytes: 2 << 30, WriteLimit: slow}},
	})
}

// hurry ends what slowMachine began.
func (s *site) hurry(m *metal.Machine) {
	s.Helper()
	if err := m.SetWriteLimit(s.ctx, 0, 0); err != nil {
		s.Fatal(err)
	}
}

// TestMetalRestartInMidWrite: somebody presses the reset button while the disk is half written. It does not boot; the
// installer comes again, and a new command writes from the top.
func TestMetalRestartInMidWrite(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.slowMachine()
	s.maintain(m.Name())
	op := s.reimage(m.Name(), "cut")
	s.until(op, "stage: write")
	s.hurry(m)
	if err := m.Reset(s.ctx); err != nil {
		t.Fatal(err)
	}
	op = s.ended(op, nil)
	s.holdsInstalled(m, op)
	if n := s.logged(op, "stage: write"); n != 2 {
		t.Errorf("%d writes began, want the one that was cut and one more", n)
	}
}

// TestMetalKilledInMidWrite: site agent and controller are both killed while a disk is being written; the same command
// goes on and ends.
func TestMetalKilledInMidWrite(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.slowMachine()
	s.maintain(m.Name())
	op := s.reimage(m.Name(), "killed")
	s.until(op, "stage: write")
	if err := errors.Join(s.lab.KillSite(), s.lab.KillController(), s.lab.StartController(s.ctx), s.lab.StartSite(s.ctx)); err != nil {
		t.Fatal(err)
	}
	s.hurry(m)
	op = s.ended(op, nil)
	s.holdsInstalled(m, op)
	if n := s.logged(op, "stage: write"); n != 1 {
		t.Errorf("%d writes began, want 1", n)
	}
}

// TestMetalSecondKey: while the installer writes, somebody else with the machine's addresses asks to be certified for the
// same operation. Both are alive, and so neither may go on.
func TestMetalSecondKey(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.slowMachine()
	s.maintain(m.Name())
	op := s.reimage(m.Name(), "contested")
	s.until(op, "stage: write")
	token, address := s.bootToken(m)
	if err := s.lab.Switch().Unplug(m.Port); err != nil {
		t.Fatal(err)
	}
	status, problem := s.rogue(m, token, address)
	if status == http.StatusOK {
		t.Fatalf("a second key was certified: %s", problem)
	}
	t.Logf("the second key is answered %d: %s", status, problem)
	if err := s.lab.Switch().Plug(m.Port); err != nil {
		t.Fatal(err)
	}
	op = s.ended(op, nil)
	if op.GetPhase() != pb.Operation_FAILED || op.GetError().GetCode() != "ENROLMENT_CONTESTED" {
		t.Errorf("ended %s, %v", op.GetPhase(), op.GetError())
	}
	s.holdsWrites(op, 0)
}

var scriptURL = regexp.MustCompile(`/boot/([A-Za-z0-9_-]{16,})/kernel`)

// bootToken reads what anybody on the segment can read: the machine's boot script, and its lease.
func (s *site) bootToken(m *metal.Machine) (token, address string) {
	s.Helper()
	said, err := m.SerialLog()
	if err != nil {
		s.Fatal(err)
	}
	found := scriptURL.FindSubmatch(said)
	leases, err := s.api.Admin.ListSiteLeases(s.ctx, &pb.ListSiteLeasesRequest{Site: metal.SiteName})
	if err != nil || found == nil {
		s.Fatalf("no boot URL on the console, or no leases (%v)", err)
	}
	for _, l := range leases.GetLeases() {
		if l.GetMacAddress() == m.About().MACs[0] {
			return string(found[1]), l.GetAddress()
		}
	}
	s.Fatalf("no lease of %s in %v", m.Name(), leases)
	return "", ""
}

// rogue takes the machine's place on the segment, asks to be certified, and goes away.
func (s *site) rogue(m *metal.Machine, token, address string) (status int, body string) {
	s.Helper()
	ns, err := network.New()
	if err != nil {
		s.Fatal(err)
	}
	defer ns.Close()
	mac, err := net.ParseMAC(m.About().MACs[0])
	if err != nil {
		s.Fatal(err)
	}
	card := s.lab.Switch().Card(ns, "rogue0", netip.PrefixFrom(netip.MustParseAddr(address), 24))
	if err := errors.Join(card, ns.SetMAC("rogue0", mac)); err != nil {
		s.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		s.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		s.Fatal(err)
	}
	ask, err := json.Marshal(desk.Request{CSR: csr, BootID: "11111111-2222-4333-8444-555555555555", MAC: mac.String()})
	if err != nil {
		s.Fatal(err)
	}
	conn, err := ns.Dial(s.ctx, net.JoinHostPort(metal.SiteAddress, "8080"))
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /boot/%s/enrol HTTP/1.1\r\nHost: site\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		token, len(ask), ask)
	answer, err := io.ReadAll(conn)
	if err != nil {
		s.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(answer), "HTTP/1.1 %d", &status); err != nil {
		s.Fatalf("answer %q", answer)
	}
	_, text, _ := bytes.Cut(answer, []byte("\r\n\r\n"))
	return status, string(text)
}

// TestMetalUnknownMachine: it is told of, and gets no boot file.
func TestMetalUnknownMachine(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	m := s.machine(metal.MachineConfig{Name: "stranger", Firmware: vm.BIOS, Unknown: true, NetworkFirst: true})
	began := time.Now()
	s.power(m, bmc.PowerOn)
	var found *pb.DiscoveredMachine
	testkit.Eventually(t, cycle, func() bool {
		list, err := s.api.Admin.ListDiscovered(s.ctx, &pb.ListDiscoveredRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list.GetMachines() {
			if d.GetMacAddress() == m.About().MACs[0] {
				found = d
			}
		}
		return found != nil
	}, "the stranger is not reported")
	if found.GetArch() != "bios" || found.GetSegment() == "" {
		t.Errorf("reported as %v", found)
	}
	if _, err := m.WaitSaid(s.ctx, "Booting from Hard Disk", began); err != nil {
		t.Error(err)
	}
	if at, ok := m.Said("/kernel", began); ok {
		t.Errorf("it was given a kernel at %v", at)
	}
}

// TestMetalBMCs: what a BMC does wrong ends the operation with its reason, and no machine is started.
func TestMetalBMCs(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	_, err := s.api.Admin.SetBMCCredentials(s.ctx, &pb.SetBMCCredentialsRequest{CredentialsRef: "wrong", Username: metal.Username, Password: "not-it"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, reason string
		machine      metal.MachineConfig
		spoil        func(*metal.Machine)
		holds        func(*metal.Machine) error
	}{
		{"a wrong password", "BMC_AUTH_FAILED", metal.MachineConfig{BMC: metal.Redfish, CredentialsRef: "wrong"}, func(*metal.Machine) {},
			func(m *metal.Machine) error {
				if n := m.Redfish.Counts().WrongPasswords; n != 1 {
					return fmt.Errorf("the wrong password was tried %d times", n)
				}
				return nil
			}},
		{"a liar by Redfish", "BMC_NO_EFFECT", metal.MachineConfig{BMC: metal.Redfish},
			func(m *metal.Machine) { m.Redfish.Misbehave(bmc.Faults{Liar: true}) }, nil},
		{"a liar by IPMI", "BMC_NO_EFFECT", metal.MachineConfig{BMC: metal.IPMI}, func(m *metal.Machine) { m.IPMI.Lie(true) }, nil},
		{"silence", "BMC_UNREACHABLE", metal.MachineConfig{BMC: metal.Redfish},
			func(m *metal.Machine) { m.Redfish.Misbehave(bmc.Faults{Silent: true}) }, nil},
	} {
		c.machine.Firmware = vm.BIOS
		m := s.machine(c.machine)
		s.maintain(m.Name())
		c.spoil(m)
		began := time.Now()
		op := s.ended(s.reimage(m.Name(), "spoilt"), nil)
		t.Logf("%s: %s after %.1f s: %s", c.name, op.GetError().GetCode(), time.Since(began).Seconds(), op.GetError().GetMessage())
		if op.GetPhase() != pb.Operation_FAILED || op.GetError().GetCode() != c.reason {
			t.Errorf("%s: %s, %v; want %s", c.name, op.GetPhase(), op.GetError(), c.reason)
		}
		if n := m.PowerOns(); n != 0 {
			t.Errorf("%s: %d power-ons", c.name, n)
		}
		if c.holds != nil {
			if err := c.holds(m); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
	}
}
