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

	"github.com/ingot-metal/ingot/agent/site/installerenrol"
	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/metal"
	"github.com/ingot-metal/ingot/lab/network"
)

// TestMetalSecondKey: while the installer writes, another host with the machine's addresses asks for a certificate for
// the same operation. It asks again after the installer has shown that it lives. Neither may go on.
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
	r := s.newRogue(m)
	if status, problem := r.ask(); status != http.StatusServiceUnavailable {
		t.Fatalf("a second key is answered %d: %s", status, problem)
	}
	// Signs of life count from two seconds after the first ask on: they are stored a little late.
	s.installerLives(m, time.Now().Add(3*time.Second))
	if status, problem := r.ask(); status != http.StatusConflict {
		t.Errorf("a second key beside a living installer is answered %d: %s", status, problem)
	}
	op = s.ended(op, nil)
	if op.GetPhase() != pb.Operation_FAILED || op.GetError().GetCode() != "ENROLMENT_CONTESTED" {
		t.Errorf("ended %s, %v", op.GetPhase(), op.GetError())
	}
	s.holdsWrites(op, 0)
}

// installerLives waits for a sign of life that is given later than since.
func (s *site) installerLives(m *metal.Machine, since time.Time) {
	s.Helper()
	testkit.Eventually(s.T, cycle, func() bool {
		list, err := s.api.Admin.ListAgents(s.ctx, &pb.ListAgentsRequest{})
		if err != nil {
			s.Fatal(err)
		}
		for _, a := range list.GetAgents() {
			if a.GetMachineId() == m.Name() && a.GetConnected() && a.GetLastHeartbeatAt().AsTime().After(since) {
				return true
			}
		}
		return false
	}, "installer gives no sign of life")
}

// rogue has a machine's addresses, and a key of its own.
type rogue struct {
	s                    *site
	m                    *metal.Machine
	token, address, body string
	ns                   *network.Namespace
}

const rogueCard = "rogue0"

var scriptURL = regexp.MustCompile(`/boot/([A-Za-z0-9_-]{16,})/kernel`)

// newRogue reads what anybody on the segment can read: the machine's boot script, and its address.
func (s *site) newRogue(m *metal.Machine) *rogue {
	s.Helper()
	return s.newRogueSeen(m, m)
}

// newRogueSeen reads the boot script on the console of another machine.
func (s *site) newRogueSeen(on, m *metal.Machine) *rogue {
	s.Helper()
	r := &rogue{s: s, m: m}
	said, err := on.SerialLog()
	if err != nil {
		s.Fatal(err)
	}
	all := scriptURL.FindAllSubmatch(said, -1)
	if len(all) == 0 {
		s.Fatal("no boot URL on the console")
	}
	r.token = string(all[len(all)-1][1])
	leases, err := s.api.Admin.ListSiteLeases(s.ctx, &pb.ListSiteLeasesRequest{Site: metal.SiteName})
	if err != nil {
		s.Fatal(err)
	}
	for _, l := range leases.GetLeases() {
		if l.GetMacAddress() == m.About().MACs[0] {
			r.address = l.GetAddress()
		}
	}
	r.body = r.request()
	return r
}

func (r *rogue) request() string {
	r.s.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		r.s.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		r.s.Fatal(err)
	}
	ask, err := json.Marshal(installerenrol.Request{
		CSR: csr, BootID: "11111111-2222-4333-8444-555555555555", MAC: r.m.About().MACs[0],
	})
	if err != nil {
		r.s.Fatal(err)
	}
	return fmt.Sprintf(
		"POST /boot/%s/enrol HTTP/1.1\r\nHost: site\r\nConnection: close\r\nContent-Type: application/json\r\n"+
			"Content-Length: %d\r\n\r\n%s", r.token, len(ask), ask)
}

// ask takes the machine's place on the segment, asks to be certified, and goes away.
func (r *rogue) ask() (status int, body string) {
	r.s.Helper()
	if err := errors.Join(r.s.lab.Switch().Unplug(r.m.Port), r.plug()); err != nil {
		r.s.Fatal(err)
	}
	answer, err := r.converse()
	// Its card goes with its network.
	if err := errors.Join(err, r.ns.Remove(rogueCard), r.ns.Close(), r.s.lab.Switch().Plug(r.m.Port)); err != nil {
		r.s.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(answer), "HTTP/1.1 %d", &status); err != nil {
		r.s.Fatalf("answer %q", answer)
	}
	_, text, _ := bytes.Cut(answer, []byte("\r\n\r\n"))
	return status, string(text)
}

func (r *rogue) plug() (err error) {
	if r.ns, err = network.New(); err != nil {
		return err
	}
	mac, err := net.ParseMAC(r.m.About().MACs[0])
	if err != nil {
		return err
	}
	address, err := netip.ParseAddr(r.address)
	if err != nil {
		return err
	}
	if err := r.s.lab.Switch().Card(r.ns, rogueCard, netip.PrefixFrom(address, 24)); err != nil {
		return err
	}
	return r.ns.SetMAC(rogueCard, mac)
}

func (r *rogue) converse() ([]byte, error) {
	conn, err := r.ns.Dial(r.s.ctx, net.JoinHostPort(metal.SiteAddress, "8080"))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, r.body); err != nil {
		return nil, err
	}
	return io.ReadAll(conn)
}
