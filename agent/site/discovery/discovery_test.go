package discovery_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/agent/site/discovery"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

const user, password = "admin", "s3cret-bmc"

func TestMain(m *testing.M) {
	lab.MainIfControl()
	os.Exit(m.Run())
}

// rack is BMCs at the loopback addresses of a network, all on one port, as a real network has them.
type rack struct {
	*testing.T
	first netip.Addr
	port  int
}

// newRack takes a port that is free at the addresses of a test's own network.
func newRack(t *testing.T, network string) *rack {
	t.Helper()
	r := &rack{T: t, first: netip.MustParsePrefix(network).Addr()}
	l, err := net.Listen("tcp", net.JoinHostPort(r.at(1).String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	r.port = l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return r
}

// at is the n-th address.
func (r *rack) at(n int) netip.Addr {
	a := r.first
	for range n {
		a = a.Next()
	}
	return a
}

func (r *rack) listen(n int) string { return netip.AddrPortFrom(r.at(n), uint16(r.port)).String() }

// machine is what stands behind the n-th BMC.
func machine(n int, vendor, model string) *lab.Memory {
	return &lab.Memory{Info: lab.About{
		Name: fmt.Sprintf("m-%d", n), UUID: fmt.Sprintf("6f1d2c3b-0000-4000-8000-0000000000%02x", n),
		Serial: fmt.Sprintf("SN-%03d", n), MACs: []string{fmt.Sprintf("52:54:00:00:01:%02x", n)}, UEFI: true,
		Vendor: vendor, Model: model,
	}}
}

func (r *rack) redfish(n int, c lab.Chassis, s lab.Shape, f lab.Faults, password string) *lab.Redfish {
	r.Helper()
	var b *lab.Redfish
	var err error
	// Another connection may have the port for a moment: the kernel assigns ports of this range.
	testkit.Eventually(r, 30*time.Second, func() bool {
		b, err = lab.StartRedfish(r.Context(), lab.RedfishConfig{Chassis: c, Listen: r.listen(n), User: user,
			Password: password, Shape: s})
		return !errors.Is(err, syscall.EADDRINUSE)
	}, "the port of BMC %d stays in use", n)
	if err != nil {
		r.Fatal(err)
	}
	b.Misbehave(f)
	r.Cleanup(func() {
		if err := b.Close(); err != nil {
			r.Error(err)
		}
	})
	return b
}

func (r *rack) ipmi(n int, c lab.Chassis) {
	r.Helper()
	s, err := lab.StartIPMI(r.Context(), lab.IPMIConfig{Chassis: c, Dir: testkit.TempDir(r),
		Addr: netip.AddrPortFrom(r.at(n), uint16(r.port)), User: user, Password: password})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		if err := s.Close(); err != nil {
			r.Error(err)
		}
	})
}

// provider has no credentials but those that a discovery brings.
func (r *rack) provider() *bmc.Provider {
	p := bmc.New(bmc.Config{
		Credentials: func(context.Context, provider.Target) (bmc.Credentials, error) {
			r.Error("a discovery asks for the credentials of a machine")
			return bmc.Credentials{}, nil
		},
		Clock: clock.Real(), Memory: bmc.FileMemory(r.TempDir() + "/bmc.json"),
	})
	r.Cleanup(func() { p.Close(context.Background()) })
	return p
}

func (r *rack) request(bits int, allowed ...string) discovery.Request {
	r.Helper()
	addresses, err := bmcaddr.Expand([]string{netip.PrefixFrom(r.first, bits).String()})
	if err != nil {
		r.Fatal(err)
	}
	return discovery.Request{Addresses: addresses, Port: r.port, Ref: "rack",
		Credentials: &bmc.Credentials{Username: user, Password: password, Version: 1, Allowed: allowed}}
}

// at finds what was found at the n-th address.
func found(r *rack, out discovery.Result, n int) discovery.Found {
	r.Helper()
	i := slices.IndexFunc(out.BMCs, func(f discovery.Found) bool { return f.Address == r.at(n) })
	if i < 0 {
		r.Fatalf("nothing was found at %v: %v", r.at(n), out)
	}
	return out.BMCs[i]
}

// TestARackOfManyVendors: twenty BMCs of ten shapes in a network of thirty addresses, three of them slow. One has
// another password and locks after three wrong ones, and one reports another one's serial number.
func TestARackOfManyVendors(t *testing.T) {
	t.Parallel()
	r := newRack(t, "127.64.0.0/27")
	good := map[int]struct {
		vendor, model string
		shape         lab.Shape
		faults        lab.Faults
	}{
		1: {"Dell Inc.", "PowerEdge R650", lab.IDRAC9, lab.Faults{}}, 2: {"Dell Inc.", "PowerEdge R650", lab.IDRAC9,
			lab.Faults{}},
		3: {"Dell Inc.", "PowerEdge R570", lab.IDRAC10, lab.Faults{}}, 4: {"NVIDIA", "DGX H100", lab.AMIDGX, lab.Faults{}},
		5: {"NVIDIA", "BlueField-3", lab.BlueField, lab.Faults{}}, 6: {"NVIDIA", "GB200 NVL", lab.GB200, lab.Faults{}},
		7: {"Supermicro", "SYS-121H", lab.SupermicroMode, lab.Faults{}},
		8: {"Supermicro", "SYS-121H", lab.SupermicroMode, lab.Faults{}},
		9: {"HPE", "ProLiant DL360", lab.ILO, lab.Faults{}}, 10: {"HPE", "ProLiant DL360", lab.ILO, lab.Faults{}},
		11: {"Lenovo", "x3650 M5", lab.Slashed, lab.Faults{}}, 12: {"Dell Inc.", "PowerEdge R640", lab.NoSessions,
			lab.Faults{}},
		13: {"Fujitsu", "RX2540", lab.Asynchronous, lab.Faults{}}, 14: {"Ingot", "Laboratory machine", lab.Shape{},
			lab.Faults{}},
		15: {"IBM", "x3550", lab.SlowBMC, lab.Faults{}}, 16: {"HPE", "ProLiant DL20", lab.ILO, lab.Faults{Slow: time.Second}},
		17: {"Supermicro", "X9", lab.SupermicroMode, lab.Faults{Slow: 2 * time.Second}},
	}
	services := map[int]*lab.Redfish{}
	for n, g := range good {
		services[n] = r.redfish(n, machine(n, g.vendor, g.model), g.shape, g.faults, password)
	}
	r.ipmi(18, machine(18, "Quanta", "D52B"))
	locks := r.redfish(
		19,
		machine(19, "HPE", "ProLiant"),
		lab.ILO,
		lab.Faults{LockAfter: 3, WrongPassword: 400},
		"another",
	)
	liar := machine(20, "Dell Inc.", "PowerEdge R650")
	liar.Info.Serial = "SN-001"
	services[20] = r.redfish(20, liar, lab.IDRAC9, lab.Faults{}, password)
	notBMC(r, 25)

	began := time.Now()
	out := discovery.Run(t.Context(), r.provider(), r.request(27, "127.64.0.0/27"))
	took := time.Since(began)
	t.Logf("%d BMCs at 30 addresses in %v", len(out.BMCs), took.Round(100*time.Millisecond))
	if took > 55*time.Second {
		t.Errorf("it took %v", took)
	}
	if len(out.BMCs) != 20 || out.Skipped != 0 || out.Problem != "" {
		t.Errorf("found %d, skipped %d, problem %q", len(out.BMCs), out.Skipped, out.Problem)
	}
	for n, g := range good {
		f, m := found(r, out, n), machine(n, g.vendor, g.model).Info
		if f.Protocol != bmc.Redfish || f.Endpoint != "redfish://"+r.listen(n) || f.Vendor != m.Vendor ||
			f.Model != m.Model ||
			f.Serial != m.Serial ||
			f.UUID != m.UUID ||
			!slices.Equal(f.MACs, m.MACs) {
			t.Errorf("%s is taken for %+v", m.Name, f)
		}
		if n != 1 && f.Problem != "" {
			t.Errorf("%s has a problem: %s", m.Name, f.Problem)
		}
	}
	if f := found(r, out, 18); f.Protocol != bmc.IPMI || f.Vendor != "Quanta" || f.Model != "D52B" ||
		f.Serial != "SN-018" || f.Problem != "" {
		t.Errorf("over IPMI: %+v", f)
	}
	if f := found(r, out, 19); !strings.Contains(f.Problem, "refuses the credentials") || f.Serial != "" {
		t.Errorf("with another password: %+v", f)
	}
	if n := locks.Counts(); n.WrongPasswords != 1 || n.Locked {
		t.Errorf("the account that locks: %+v", n)
	}
	for n, other := range map[int]int{1: 20, 20: 1} {
		if f := found(r, out, n); !strings.Contains(f.Problem, "SN-001 is what "+r.at(other).String()+" says too") {
			t.Errorf("of the two that say the same: %+v", f)
		}
	}
	for n, s := range services {
		if c := s.Counts(); c.Sessions > 1 || c.Open != 0 || c.WrongPasswords != 0 {
			t.Errorf("log-ins at %d: %+v", n, c)
		}
	}
}

// notBMC is a web server, which gets no password whatever it asks for.
func notBMC(r *rack, n int) {
	r.Helper()
	l, err := net.Listen("tcp", r.listen(n))
	if err != nil {
		r.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "" || req.Method != http.MethodGet {
			r.Errorf("a web server got %s %s", req.Method, req.URL)
		}
		http.NotFound(w, req)
	}))
	if err := s.Listener.Close(); err != nil {
		r.Fatal(err)
	}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Listener, s.TLS = l, &tls.Config{MinVersion: tls.VersionTLS12}
	s.StartTLS()
	r.Cleanup(s.Close)
}

func TestCredentialsGoOnlyWhereTheyAreFor(t *testing.T) {
	t.Parallel()
	r := newRack(t, "127.64.1.0/29")
	inside := r.redfish(1, machine(1, "", ""), lab.Shape{}, lab.Faults{}, password)
	outside := r.redfish(2, machine(2, "HPE", ""), lab.Shape{}, lab.Faults{}, password)
	req := r.request(29, r.at(1).String())
	out := discovery.Run(t.Context(), r.provider(), req)
	if f := found(r, out, 1); f.Problem != "" || f.Serial != "SN-001" || inside.Counts().Sessions != 1 {
		t.Errorf("inside: %+v", f)
	}
	f := found(r, out, 2)
	if !strings.Contains(f.Problem, "not for it") || f.Vendor != "HPE" || f.Serial != "" {
		t.Errorf("outside: %+v", f)
	}
	if n := outside.Counts(); n.Sessions+n.WrongPasswords != 0 {
		t.Errorf("outside: %+v", n)
	}
	req.Credentials = nil
	if f := found(r, discovery.Run(t.Context(), r.provider(), req), 1); !strings.Contains(f.Problem, "not for it") {
		t.Errorf("without credentials: %+v", f)
	}
}

func TestAWrongPasswordIsSentToThreeBMCs(t *testing.T) {
	t.Parallel()
	r := newRack(t, "127.64.2.0/28")
	var all []*lab.Redfish
	for n := 1; n <= 8; n++ {
		all = append(all, r.redfish(n, machine(n, "", ""), lab.Shape{}, lab.Faults{LockAfter: 1}, "another"))
	}
	wrong := func() (n int) {
		for _, s := range all {
			n += s.Counts().WrongPasswords
		}
		return n
	}
	p := r.provider()
	out := discovery.Run(t.Context(), p, r.request(28, "127.64.2.0/28"))
	untried := 0
	for _, f := range out.BMCs {
		if strings.HasPrefix(f.Problem, "not logged in to: three BMCs in a row") {
			untried++
		}
	}
	if wrong() != 3 || untried != 5 ||
		!strings.HasPrefix(out.Problem, "3 BMCs in a row have refused the credentials rack") {
		t.Errorf("%d log-ins, %d not tried, %q", wrong(), untried, out.Problem)
	}
	// What was refused is not sent there again, by no later discovery: the others are tried, three at most.
	for _, want := range []int{6, 8, 8} {
		discovery.Run(t.Context(), p, r.request(28, "127.64.2.0/28"))
		if wrong() != want {
			t.Errorf("%d log-ins, want %d", wrong(), want)
		}
	}
	for i, s := range all {
		if n := s.Counts().WrongPasswords; n > 1 {
			t.Errorf("BMC %d got %d wrong passwords", i+1, n)
		}
	}
}

func TestABMCThatChangesItsCertificateGetsNoPassword(t *testing.T) {
	t.Parallel()
	r := newRack(t, "127.64.3.0/30")
	first := r.redfish(1, machine(1, "", ""), lab.Shape{}, lab.Faults{}, password)
	p, req := r.provider(), r.request(30, "127.64.3.0/30")
	if f := found(r, discovery.Run(t.Context(), p, req), 1); f.Problem != "" {
		t.Fatalf("at first: %+v", f)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := r.redfish(1, machine(1, "", ""), lab.Shape{}, lab.Faults{}, password)
	f := found(r, discovery.Run(t.Context(), p, req), 1)
	if !strings.Contains(f.Problem, "another certificate") || second.Counts().Sessions != 0 {
		t.Errorf("with another certificate: %+v, %+v", f, second.Counts())
	}
}

func TestADiscoveryEndsInTime(t *testing.T) {
	t.Parallel()
	r := newRack(t, "127.64.4.0/26")
	for n := 1; n <= 40; n++ {
		r.redfish(n, machine(n, "", ""), lab.Shape{}, lab.Faults{Silent: true}, password)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	out := discovery.Run(ctx, r.provider(), r.request(26, "127.64.4.0/26"))
	if took := time.Since(began); took > 10*time.Second || out.Skipped < 40 {
		t.Errorf("it took %v and skipped %d", took, out.Skipped)
	}
}
