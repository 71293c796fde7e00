package bmc_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

// service is a lab BMC of either kind.
type service struct {
	endpoint string
	silent   func(bool)
	lie      func(bool)
	counts   func() lab.Counts // nil: nobody counts
}

func services(t *testing.T, c lab.Chassis) map[string]service {
	t.Helper()
	r, s := startRedfish(t, c), startIPMI(t, c)
	check := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	return map[string]service{
		"redfish": {
			endpoint: r.Endpoint(),
			silent:   func(on bool) { r.Misbehave(lab.Faults{Silent: on}) },
			lie:      func(on bool) { r.Misbehave(lab.Faults{Liar: on}) },
			counts:   r.Counts,
		},
		"ipmi": {
			endpoint: s.Endpoint(),
			silent: func(on bool) {
				if on {
					check(s.Freeze())
				} else {
					check(s.Thaw())
				}
			},
			lie: s.Lie,
		},
	}
}

func wantReason(t *testing.T, what string, err error, reason string, retryable bool) *failure.Error {
	t.Helper()
	var e *failure.Error
	if !errors.As(err, &e) || e.Reason != reason || e.Retryable != retryable {
		t.Fatalf("%s: %v; want %s, retryable %v", what, err, reason, retryable)
	}
	if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "wrong-one") {
		t.Errorf("%s: a password is in %v", what, err)
	}
	return e
}

// A wrong password is tried once, whoever asks for what and at the same time, until there is another.
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
	wantReason(t, "off", p.SetPower(t.Context(), tg, effect("c"), provider.PowerOff), "BMC_AUTH_FAILED", false)
	wantReason(t, "boot device", p.SetBootDevice(t.Context(), tg, effect("c"), provider.BootPXE), "BMC_AUTH_FAILED", false)
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
	if err := p.Unpark(t.Context(), target(r.Endpoint())); err != nil {
		t.Fatal(err)
	}
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

func TestSilentBMC(t *testing.T) {
	t.Parallel()
	for name, svc := range services(t, newChassis(true)) {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, newSafe(password), nil)
			if _, err := p.PowerState(t.Context(), target(svc.endpoint)); err != nil {
				t.Fatal(err)
			}
			svc.silent(true)
			began := time.Now()
			err := p.SetPower(t.Context(), target(svc.endpoint), effect("c"), provider.PowerOff)
			e := wantReason(t, "off", err, "BMC_UNREACHABLE", true)
			if took := time.Since(began); took > 30*time.Second {
				t.Errorf("it took %v to say so", took)
			}
			if e.Metadata[bmc.EvidenceProtocol] != name && !strings.Contains(err.Error(), "asked again at") {
				t.Errorf("metadata %v of %v", e.Metadata, err)
			}
			svc.silent(false)
			testkit.Eventually(t, 20*time.Second, func() bool {
				state, err := p.PowerState(t.Context(), target(svc.endpoint))
				return err == nil && state != provider.PowerUnknown
			}, "it answers again, and nobody listens")
		})
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	for _, scheme := range []string{"", "redfish://", "ipmi://"} {
		p := newProvider(t, newSafe(password), nil)
		_, err := p.PowerState(t.Context(), target(scheme+addr))
		wantReason(t, scheme+" to a closed port", err, "BMC_UNREACHABLE", true)
		_, err = p.PowerState(t.Context(), target(scheme+addr))
		if e := wantReason(t, "at once again", err, "BMC_UNREACHABLE", true); e.RetryAfter <= 0 || e.RetryAfter > time.Second {
			t.Errorf("it says to wait for %v", e.RetryAfter)
		}
	}
}

func TestLiar(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	for name, svc := range services(t, c) {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t, newSafe(password), nil)
			svc.lie(true)
			err := p.SetPower(t.Context(), target(svc.endpoint), effect("c"), provider.PowerOff)
			e := wantReason(t, "off", err, "BMC_NO_EFFECT", true)
			if e.Metadata[bmc.EvidencePowerRead] != "on" || e.Metadata[bmc.EvidenceSwitches] != "1" {
				t.Errorf("evidence %v", e.Metadata)
			}
		})
	}
	if got, err := c.PowerState(t.Context()); err != nil || got != lab.On {
		t.Errorf("power is %v, %v", got, err)
	}
}

func TestLiarAboutTheBootDevice(t *testing.T) {
	t.Parallel()
	r := startRedfish(t, newChassis(true))
	r.Misbehave(lab.Faults{Liar: true})
	p := newProvider(t, newSafe(password), nil)
	err := p.SetBootDevice(t.Context(), target(r.Endpoint()), effect("c"), provider.BootPXE)
	if e := wantReason(t, "boot device", err, "BMC_NO_EFFECT", true); e.Metadata[bmc.EvidenceBootRead] != "" {
		t.Errorf("evidence %v", e.Metadata)
	}
}

func TestBrokenBMC(t *testing.T) {
	t.Parallel()
	r := startRedfish(t, newChassis(true))
	r.Misbehave(lab.Faults{Broken: true})
	p := newProvider(t, newSafe(password), nil)
	err := p.SetPower(t.Context(), target(r.Endpoint()), effect("c"), provider.PowerOff)
	wantReason(t, "off", err, "EXECUTION_FAILED", true)
	if n := r.Counts().WrongPasswords; n != 0 {
		t.Errorf("%d wrong passwords", n)
	}
}

func TestGentleOffIsForcedInTheEnd(t *testing.T) {
	t.Parallel()
	for _, stubborn := range []bool{false, true} {
		c := newChassis(true)
		c.Stubborn = stubborn
		for name, svc := range services(t, c) {
			p := newProvider(t, newSafe(password), nil)
			before := len(c.Switched())
			var cycle provider.Cycle
			kept := 0
			keep := func(provider.Cycle) error { kept++; return nil }
			if err := p.TurnOff(t.Context(), target(svc.endpoint), effect("c"), true, &cycle, keep); err != nil {
				t.Fatal(err)
			}
			want := []lab.Switch{lab.SoftOff}
			if stubborn {
				want = append(want, lab.ForceOff)
			}
			if got := c.Switched()[before:]; !slices.Equal(got, want) || cycle.Forced != stubborn || cycle.Protocol != name || kept != 2 {
				t.Errorf("%s, stubborn %v: switched %q, cycle %+v, kept %d times", name, stubborn, got, cycle, kept)
			}
			if err := p.TurnOn(t.Context(), target(svc.endpoint), effect("c"), &cycle, keep); err != nil || cycle.OnSeenAt.Before(cycle.OffSeenAt) {
				t.Errorf("on: %+v, %v", cycle, err)
			}
		}
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

// Somebody else's certificate at the known address gets no password.
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
		return failure.HasReason(err, "BMC_AUTH_FAILED")
	}, "another certificate is taken: %v", err)
	if n := second.Counts(); n.Requests != 0 {
		t.Errorf("%d requests went to a stranger", n.Requests)
	}
	if err := p.Unpark(t.Context(), target(second.Endpoint())); err != nil {
		t.Fatal(err)
	}
	if _, err := p.PowerState(t.Context(), target(second.Endpoint())); err != nil {
		t.Errorf("after unparking: %v", err)
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
	for name, c := range map[string]*tls.Certificate{"self-signed": nil, "signed by others": &stranger, "for another address": &misnamed} {
		err, n := ask(c)
		wantReason(t, name, err, "BMC_AUTH_FAILED", false)
		if n.Requests > 0 {
			t.Errorf("%s: %d requests", name, n.Requests)
		}
	}
}

// What was found once is forgotten when it does not fit any more.
func TestProtocolIsFoundAgain(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	r, err := lab.StartRedfish(t.Context(), lab.RedfishConfig{Chassis: c, Listen: "127.0.0.1:0", User: user, Password: password})
	if err != nil {
		t.Fatal(err)
	}
	sim := startIPMIAt(t, c, r.Addr())
	p := newProvider(t, newSafe(password), nil)
	ask := func() string {
		var cycle provider.Cycle
		if err := p.TurnOn(t.Context(), target(sim.Addr()), effect("c"), &cycle, func(provider.Cycle) error { return nil }); err != nil {
			return err.Error()
		}
		return cycle.Protocol
	}
	if got := ask(); got != "redfish" {
		t.Errorf("first found: %s", got)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 30*time.Second, func() bool { return ask() == "ipmi" }, "Redfish is gone and IPMI is not found")
}

func TestSerialPerBMCAndParallelAcross(t *testing.T) {
	t.Parallel()
	const slow, asks = 200 * time.Millisecond, 4
	a, b := startRedfish(t, newChassis(true)), startRedfish(t, newChassis(true))
	p := newProvider(t, newSafe(password), nil)
	for _, r := range []*lab.Redfish{a, b} {
		if _, err := p.PowerState(t.Context(), target(r.Endpoint())); err != nil {
			t.Fatal(err)
		}
		r.Misbehave(lab.Faults{Slow: slow})
	}
	began := time.Now()
	group, _ := task.New(t.Context())
	for _, r := range []*lab.Redfish{a, b} {
		for range asks {
			group.Go("ask", func(ctx context.Context) error {
				_, err := p.PowerState(ctx, target(r.Endpoint()))
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < asks*slow || took > 2*asks*slow-slow/2 {
		t.Errorf("%d slow requests at each of two BMCs took %v", asks, took)
	}
	if n := a.Counts().AtOnce; n != 1 {
		t.Errorf("%d requests at once at one BMC", n)
	}
}

func TestProber(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	r, sim := startRedfish(t, c), startIPMI(t, newChassis(false))
	wrong := startRedfish(t, newChassis(true))
	s := newSafe(password)
	bad := newSafe("wrong-one")
	p := newProvider(t, s, func(cfg *bmc.Config) {
		cfg.Credentials = func(ctx context.Context, t provider.Target) (bmc.Credentials, error) {
			if t.CredentialsRef == "bad" {
				return bad.get(ctx, t)
			}
			return s.get(ctx, t)
		}
	})
	var mu sync.Mutex
	seen := map[string][]bmc.Observation{}
	prober := bmc.NewProber(bmc.ProberConfig{
		Provider: p, Clock: clock.Real(), Every: 50 * time.Millisecond,
		Report: func(o bmc.Observation) {
			mu.Lock()
			defer mu.Unlock()
			seen[o.MachineID] = append(seen[o.MachineID], o)
		},
	})
	last := func(id string) (bmc.Observation, int) {
		mu.Lock()
		defer mu.Unlock()
		all := seen[id]
		if len(all) == 0 {
			return bmc.Observation{}, 0
		}
		return all[len(all)-1], len(all)
	}
	machine := func(id, endpoint, ref string) provider.Target {
		return provider.Target{MachineID: id, BMCEndpoint: endpoint, CredentialsRef: ref}
	}
	prober.Replace([]provider.Target{
		machine("on", r.Addr(), "good"), machine("off", sim.Addr(), "good"), machine("parked", wrong.Endpoint(), "bad"),
		machine("typo", "telnet://x", "good"), machine("none", "", "good"),
	})
	ctx, cancel := context.WithCancel(t.Context())
	group, _ := task.New(ctx)
	group.Go("prober", prober.Run)
	testkit.Eventually(t, 20*time.Second, func() bool {
		_, a := last("on")
		_, b := last("off")
		_, c := last("parked")
		_, d := last("typo")
		return min(a, b, c, d) >= 5
	}, "not every BMC was looked at")
	for id, want := range map[string]bmc.Observation{
		"on":     {Reachable: true, Power: provider.PowerOn, Protocol: "redfish"},
		"off":    {Reachable: true, Power: provider.PowerOff, Protocol: "ipmi"},
		"parked": {Power: provider.PowerUnknown, Reason: "BMC_AUTH_FAILED"},
		"typo":   {Power: provider.PowerUnknown, Reason: "INVALID_FIELD"},
	} {
		got, _ := last(id)
		if got.Reachable != want.Reachable || got.Power != want.Power || got.Reason != want.Reason || want.Protocol != "" && got.Protocol != want.Protocol {
			t.Errorf("%s: %+v, want %+v", id, got, want)
		}
	}
	if n := wrong.Counts().WrongPasswords; n != 1 {
		t.Errorf("the prober has tried a wrong password %d times", n)
	}
	if err := c.SetPower(t.Context(), lab.ForceOff); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool { o, _ := last("on"); return o.Power == provider.PowerOff }, "a change was not seen")
	prober.Replace(nil)
	testkit.Eventually(t, 10*time.Second, func() bool { _, n := last("on"); return still(n, func() int { _, n := last("on"); return n }) }, "it goes on without targets")
	cancel()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// still says whether count stays at n for some rounds of the prober.
func still(n int, count func() int) bool {
	<-time.After(300 * time.Millisecond)
	return count() == n
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

// A BMC that says no has answered: its session goes on, and so does everything else.
func TestRefusalIsAnAnswer(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	c.Info.UEFI = false
	for name, svc := range services(t, c) {
		p := newProvider(t, newSafe(password), nil)
		for range 3 {
			if err := p.SetBootDevice(t.Context(), target(svc.endpoint), effect("c"), provider.BootHTTP); !errors.Is(err, host.ErrUnsupported) {
				t.Errorf("%s: HTTP boot of a BIOS: %v", name, err)
			}
			if _, err := p.PowerState(t.Context(), target(svc.endpoint)); err != nil {
				t.Errorf("%s: after a refusal: %v", name, err)
			}
		}
		if svc.counts != nil && svc.counts().Sessions != 1 {
			t.Errorf("%d sessions", svc.counts().Sessions)
		}
	}
}
