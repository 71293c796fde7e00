package bmc_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

// A wrong password is tried once, by all calls together, until there is another.
func TestWrongPasswordIsTriedOnce(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	r := startRedfish(t, c)
	r.Misbehave(lab.Faults{LockAfter: 2})
	s := newSafe("wrong-one")
	p := newProvider(t, s, nil)
	tg := target(r.Endpoint())
	group, _ := task.New(t.Context())
	for range 8 {
		group.Go("ask", func(ctx context.Context) error {
			_, err := p.PowerState(ctx, tg)
			if !failure.HasReason(err, "BMC_AUTH_FAILED") {
				return fmt.Errorf("power state: %w", err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	wantReason(t, "off", p.SetPower(t.Context(), tg, cause("c"), provider.PowerOff), "BMC_AUTH_FAILED", false)
	wantReason(t, "boot device", second(p.SetBootDevice(t.Context(), tg, cause("c"), provider.BootPXE)),
		"BMC_AUTH_FAILED", false)
	other := tg
	other.MachineID = "m-2" // behind the same BMC
	_, err := p.PowerState(t.Context(), other)
	wantReason(t, "another machine of the same BMC", err, "BMC_AUTH_FAILED", false)
	if n := r.Counts(); n.WrongPasswords != 1 || n.Locked {
		t.Errorf("the BMC has counted %d wrong passwords, locked: %v", n.WrongPasswords, n.Locked)
	}
	s.set(password)
	if state, err := p.PowerState(t.Context(), tg); err != nil || state != provider.PowerOn {
		t.Errorf("with the right password: %v, %v", state, err)
	}
	if n := r.Counts(); n.WrongPasswords != 1 {
		t.Errorf("the BMC has counted %d wrong passwords", n.WrongPasswords)
	}
}

func TestWrongPasswordOverIPMI(t *testing.T) {
	t.Parallel()
	sim := startIPMI(t, newChassis(true))
	s := newSafe("wrong-one")
	p := newProvider(t, s, nil)
	tg := target(sim.Endpoint())
	tg.CredentialsVersion = 1
	for range 3 {
		_, err := p.PowerState(t.Context(), tg)
		wantReason(t, "power state", err, "BMC_AUTH_FAILED", false)
	}
	if s.asked != 1 {
		t.Errorf("credentials of a known version were asked for %d times", s.asked)
	}
	s.set(password)
	tg.CredentialsVersion = 2
	if state, err := p.PowerState(t.Context(), tg); err != nil || state != provider.PowerOn {
		t.Errorf("with the right password: %v, %v", state, err)
	}
	unknown := newSafe(password)
	unknown.creds.Username = "nobody"
	_, err := newProvider(t, unknown, nil).PowerState(t.Context(), tg)
	wantReason(t, "a user that does not exist", err, "BMC_AUTH_FAILED", false)
}

// Different wrong passwords add up; an operator ends it.
func TestManyWrongPasswordsStopEverything(t *testing.T) {
	t.Parallel()
	r := startRedfish(t, newChassis(true))
	s := newSafe("wrong-one")
	p := newProvider(t, s, nil)
	for range 5 {
		_, err := p.PowerState(t.Context(), target(r.Endpoint()))
		wantReason(t, "power state", err, "BMC_AUTH_FAILED", false)
		s.set("wrong-one too")
	}
	if n := r.Counts().WrongPasswords; n != 3 {
		t.Errorf("the BMC has seen %d wrong passwords, want 3", n)
	}
	s.set(password)
	_, err := p.PowerState(t.Context(), target(r.Endpoint()))
	wantReason(t, "even with the right one", err, "BMC_AUTH_FAILED", false)
	p.Unpark(r.Endpoint(), time.Now())
	if state, err := p.PowerState(t.Context(), target(r.Endpoint())); err != nil || state != provider.PowerOn {
		t.Errorf("after unparking: %v, %v", state, err)
	}
}

// Parked credentials and pins survive a restart of the agent.
func TestMemoryOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	r := startRedfish(t, newChassis(true))
	s := newSafe("wrong-one")
	file := filepath.Join(t.TempDir(), "bmcs.json")
	fresh := func() *bmc.Provider {
		return newProvider(t, s, func(cfg *bmc.Config) { cfg.Memory = bmc.FileMemory(file) })
	}
	for range 3 {
		_, err := fresh().PowerState(t.Context(), target(r.Addr()))
		wantReason(t, "power state", err, "BMC_AUTH_FAILED", false)
	}
	if n := r.Counts().WrongPasswords; n != 1 {
		t.Errorf("after restarts the BMC has seen %d wrong passwords", n)
	}
	s.set(password)
	if _, err := fresh().PowerState(t.Context(), target(r.Addr())); err != nil {
		t.Error(err)
	}
	record, err := bmc.FileMemory(file).Load(r.Addr())
	if err != nil || record.Protocol != bmc.Redfish || len(record.Pin) != 64 {
		t.Errorf("remembered %+v, %v", record, err)
	}
}

func TestEndedSessionIsNoWrongPassword(t *testing.T) {
	t.Parallel()
	r := startRedfish(t, newChassis(true))
	p := newProvider(t, newSafe(password), nil)
	for range 3 {
		for range 4 {
			if _, err := p.PowerState(t.Context(), target(r.Endpoint())); err != nil {
				t.Fatal(err)
			}
		}
		r.ForgetSessions()
	}
	if n := r.Counts(); n.WrongPasswords != 0 || n.Sessions != 3 {
		t.Errorf("%d wrong passwords, %d sessions", n.WrongPasswords, n.Sessions)
	}
	r.Misbehave(lab.Faults{NoSessions: true})
	fresh := newProvider(t, newSafe(password), nil)
	if state, err := fresh.PowerState(t.Context(), target(r.Endpoint())); err != nil || state != provider.PowerOn {
		t.Errorf("without sessions: %v, %v", state, err)
	}
	_, err := newProvider(t, newSafe("wrong-one"), nil).PowerState(t.Context(), target(r.Endpoint()))
	wantReason(t, "wrong password without sessions", err, "BMC_AUTH_FAILED", false)
}

// A foreign certificate at the known address gets no password.
func TestCertificateIsPinned(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	first := startRedfish(t, c)
	p := newProvider(t, newSafe(password), nil)
	if _, err := p.PowerState(t.Context(), target(first.Endpoint())); err != nil {
		t.Fatal(err)
	}
	// The same address shows another certificate now.
	addr := first.Addr()
	second := replaceRedfish(t, first, c, addr)
	_, err := p.PowerState(t.Context(), target(second.Endpoint()))
	testkit.Eventually(t, 10*time.Second, func() bool {
		_, err = p.PowerState(t.Context(), target(second.Endpoint()))
		return failure.HasReason(err, "BMC_CERTIFICATE_CHANGED")
	}, "another certificate is taken: %v", err)
	if n := second.Counts(); n.Requests != 0 {
		t.Errorf("%d requests went to a stranger", n.Requests)
	}
}

// TestAnUnparkedBMCIsAskedOnceMore: each time that an admin asks for it counts once, over restarts of the agent.
func TestAnUnparkedBMCIsAskedOnceMore(t *testing.T) {
	t.Parallel()
	r := startRedfish(t, newChassis(true))
	r.SetPassword("not yet")
	r.Misbehave(lab.Faults{WrongPassword: http.StatusForbidden})
	file := filepath.Join(t.TempDir(), "bmcs.json")
	asked := time.Now()
	for want := range 3 {
		for range 2 { // the second is an agent that has been restarted
			p := newProvider(t, newSafe(password), func(cfg *bmc.Config) { cfg.Memory = bmc.FileMemory(file) })
			if want > 0 {
				p.Unpark(r.Endpoint(), asked.Add(time.Duration(want)))
			}
			for range 2 {
				_, err := p.PowerState(t.Context(), target(r.Endpoint()))
				wantReason(t, "power state", err, "BMC_AUTH_FAILED", false)
			}
		}
		if n := r.Counts().WrongPasswords; n != want+1 {
			t.Errorf("the BMC has seen %d passwords, want %d", n, want+1)
		}
	}
	r.SetPassword(password)
	p := newProvider(t, newSafe(password), func(cfg *bmc.Config) { cfg.Memory = bmc.FileMemory(file) })
	p.Unpark(r.Endpoint(), asked.Add(time.Second))
	if state, err := p.PowerState(t.Context(), target(r.Endpoint())); err != nil || state != provider.PowerOn {
		t.Errorf("unparked, with the right password: %v, %v", state, err)
	}
}

// A machine that is pointed at another address gets nothing: no password, no session, not even a connection.
func TestCredentialsGoOnlyWhereTheyMay(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	stranger := startRedfish(t, c)
	sim := startIPMI(t, c)
	plain, err := lab.StartRedfish(t.Context(), lab.RedfishConfig{
		Chassis: c, Listen: "127.0.0.1:0", User: user, Password: password, Plain: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close() })
	s := newSafe(password)
	s.creds.Allowed, s.creds.PlainHTTP = []string{"192.0.2.0/24"}, false
	p := newProvider(t, s, nil)
	for _, endpoint := range []string{stranger.Endpoint(), stranger.Addr(), sim.Endpoint(), plain.Endpoint()} {
		_, err := p.PowerState(t.Context(), target(endpoint))
		wantReason(t, endpoint, err, "BMC_ENDPOINT_NOT_ALLOWED", false)
		wantReason(t, "console of "+endpoint, p.Console(t.Context(), target(endpoint), func(string) {}),
			"BMC_ENDPOINT_NOT_ALLOWED", false)
	}
	if a, b := stranger.Counts(), plain.Counts(); a.Requests+b.Requests != 0 {
		t.Errorf("strangers got %d and %d requests", a.Requests, b.Requests)
	}
	s.allow(stranger.Addr(), plain.Addr())
	if _, err := p.PowerState(t.Context(), target(stranger.Endpoint())); err != nil {
		t.Errorf("once allowed: %v", err)
	}
	_, err = p.PowerState(t.Context(), target(plain.Endpoint()))
	wantReason(t, "without TLS", err, "BMC_PLAIN_HTTP_NOT_ALLOWED", false)
	if n := plain.Counts(); n.Requests != 0 {
		t.Errorf("%d requests went out without TLS", n.Requests)
	}
	// Taken back while a session is open: what comes next does not go there any more.
	s.allow("192.0.2.0/24")
	tg := target(stranger.Endpoint())
	tg.CredentialsVersion = s.creds.Version
	_, err = p.PowerState(t.Context(), tg)
	wantReason(t, "taken back", err, "BMC_ENDPOINT_NOT_ALLOWED", false)
}

// A changed certificate parks the BMC. Handshakes alone look whether the old one is back; an admin may trust the new
// one.
func TestChangedCertificateWaitsForAnAdmin(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	_, oldCert := signedCertificate(t, "127.0.0.1")
	_, newCert := signedCertificate(t, "127.0.0.1")
	addr := "127.0.0.1:0"
	start := func(cert *tls.Certificate) *lab.Redfish {
		t.Helper()
		var r *lab.Redfish
		testkit.Eventually(t, 10*time.Second, func() bool {
			var err error
			r, err = lab.StartRedfish(t.Context(), lab.RedfishConfig{
				Chassis: c, Listen: addr, User: user, Password: password, Certificate: cert,
			})
			return err == nil
		}, "no listener at %s", addr)
		addr = r.Addr()
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	file := filepath.Join(t.TempDir(), "bmcs.json")
	fresh := func() *bmc.Provider {
		return newProvider(t, newSafe(password), func(cfg *bmc.Config) { cfg.Memory = bmc.FileMemory(file) })
	}
	first := start(&oldCert)
	tg := target("redfish://" + addr)
	if _, err := fresh().PowerState(t.Context(), tg); err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	second := start(&newCert)
	p := fresh() // also a new process asks no other address
	for range 3 {
		_, err := p.PowerState(t.Context(), tg)
		wantReason(t, "another certificate", err, "BMC_CERTIFICATE_CHANGED", false)
	}
	if n := second.Counts(); n.Requests != 0 {
		t.Errorf("%d requests went to a stranger", n.Requests)
	}
	_ = second.Close()
	third := start(&oldCert)
	if _, err := p.PowerState(t.Context(), tg); err != nil {
		t.Errorf("the old certificate is back: %v", err)
	}
	_ = third.Close()
	fourth := start(&newCert)
	testkit.Eventually(t, 10*time.Second, func() bool {
		_, err := p.PowerState(t.Context(), tg)
		return failure.HasReason(err, "BMC_CERTIFICATE_CHANGED")
	}, "another certificate is taken")
	record, err := bmc.FileMemory(file).Load(tg.BMCEndpoint[len("redfish://"):])
	if err != nil || record.Offered == "" || record.Offered == record.Pin {
		t.Fatalf("remembered %+v, %v", record, err)
	}
	p.Pin(tg.BMCEndpoint, record.Offered)
	if _, err := p.PowerState(t.Context(), tg); err != nil {
		t.Errorf("once trusted: %v", err)
	}
	if n := fourth.Counts(); n.Requests == 0 {
		t.Error("the trusted one was asked nothing")
	}
}

// With authorities configured, their signature counts, for the address in the endpoint, and nothing is pinned.
func TestCertificateAuthority(t *testing.T) {
	t.Parallel()
	roots, cert := signedCertificate(t, "127.0.0.1")
	_, stranger := signedCertificate(t, "127.0.0.1")
	_, misnamed := signedCertificate(t, "192.0.2.1")
	ask := func(c *tls.Certificate) (error, lab.Counts) {
		r, err := lab.StartRedfish(t.Context(), lab.RedfishConfig{
			Chassis: newChassis(true), Listen: "127.0.0.1:0", User: user, Password: password, Certificate: c,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		p := newProvider(t, newSafe(password), func(cfg *bmc.Config) { cfg.RootCAs = roots })
		_, err = p.PowerState(t.Context(), target(r.Addr()))
		return err, r.Counts()
	}
	if err, _ := ask(&cert); err != nil {
		t.Errorf("signed: %v", err)
	}
	for name, c := range map[string]*tls.Certificate{"self-signed": nil, "signed by others": &stranger,
		"for another address": &misnamed} {
		err, n := ask(c)
		wantReason(t, name, err, "BMC_AUTH_FAILED", false)
		if n.Requests > 0 {
			t.Errorf("%s: %d requests", name, n.Requests)
		}
	}
}

// Nothing of it reaches a log or a file, and none of it is in an error.
func TestPasswordsStayInMemory(t *testing.T) {
	t.Parallel()
	const secret = "Tr0ub4dor-and-3"
	r := startRedfish(t, newChassis(true))
	sim := startIPMI(t, newChassis(true))
	var log testkit.Buffer
	file := filepath.Join(t.TempDir(), "bmcs.json")
	s := newSafe(secret)
	p := newProvider(t, s, func(cfg *bmc.Config) { cfg.Memory, cfg.Log = bmc.FileMemory(file), logTo(&log) })
	for _, endpoint := range []string{r.Addr(), sim.Addr()} {
		_, err := p.PowerState(t.Context(), target(endpoint))
		if err == nil || strings.Contains(fmt.Sprintf("%+v %#v", err, err), secret) {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	if text := log.String() + readFile(t, file); strings.Contains(text, secret) || !strings.Contains(text, "parked") {
		t.Errorf("written down: %s", text)
	}
}
