package bmc_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
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
	counts   func() lab.Counts // nil: there is no counter
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
			err := p.SetPower(t.Context(), target(svc.endpoint), cause("c"), provider.PowerOff)
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
		if e := wantReason(t, "at once again", err, "BMC_UNREACHABLE", true); e.RetryAfter <= 0 ||
			e.RetryAfter > time.Second {
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
			err := p.SetPower(t.Context(), target(svc.endpoint), cause("c"), provider.PowerOff)
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
	_, err := p.SetBootDevice(t.Context(), target(r.Endpoint()), cause("c"), provider.BootPXE)
	if e := wantReason(t, "boot device", err, "BMC_NO_EFFECT", true); e.Metadata[bmc.EvidenceBootRead] != "" {
		t.Errorf("evidence %v", e.Metadata)
	}
}

func TestBrokenBMC(t *testing.T) {
	t.Parallel()
	r := startRedfish(t, newChassis(true))
	r.Misbehave(lab.Faults{Broken: true})
	p := newProvider(t, newSafe(password), nil)
	err := p.SetPower(t.Context(), target(r.Endpoint()), cause("c"), provider.PowerOff)
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
			if err := p.TurnOff(t.Context(), target(svc.endpoint), cause("c"), true, &cycle, keep); err != nil {
				t.Fatal(err)
			}
			want := []lab.Switch{lab.SoftOff}
			if stubborn {
				want = append(want, lab.ForceOff)
			}
			if got := c.Switched()[before:]; !slices.Equal(got, want) || cycle.Forced != stubborn || cycle.Protocol != name ||
				kept != 2 {
				t.Errorf("%s, stubborn %v: switched %q, cycle %+v, kept %d times", name, stubborn, got, cycle, kept)
			}
			if err := p.TurnOn(t.Context(), target(svc.endpoint), cause("c"), &cycle, keep); err != nil ||
				cycle.OnSeenAt.Before(cycle.OffSeenAt) {
				t.Errorf("on: %+v, %v", cycle, err)
			}
		}
	}
}

// What was found once is forgotten when it does not fit any more.
func TestProtocolIsFoundAgain(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	r, err := lab.StartRedfish(t.Context(), lab.RedfishConfig{Chassis: c, Listen: "127.0.0.1:0", User: user,
		Password: password})
	if err != nil {
		t.Fatal(err)
	}
	sim := startIPMIAt(t, c, r.Addr())
	p := newProvider(t, newSafe(password), nil)
	ask := func() string {
		var cycle provider.Cycle
		if err := p.TurnOn(t.Context(), target(sim.Addr()), cause("c"), &cycle,
			func(provider.Cycle) error { return nil }); err != nil {
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

// TestSerialPerBMCAndParallelAcross: a BMC gets one request at a time, and one that is silent holds up no other.
func TestSerialPerBMCAndParallelAcross(t *testing.T) {
	t.Parallel()
	const slow, asks = 200 * time.Millisecond, 4
	busy, silent := startRedfish(t, newChassis(true)), startRedfish(t, newChassis(true))
	p := newProvider(t, newSafe(password), nil)
	ask := func(ctx context.Context, r *lab.Redfish) error {
		_, err := p.PowerState(ctx, target(r.Endpoint()))
		return err
	}
	for _, r := range []*lab.Redfish{busy, silent} {
		if err := ask(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	busy.Misbehave(lab.Faults{Slow: slow})
	silent.Misbehave(lab.Faults{Silent: true})
	before := silent.Counts().Requests
	patient, cancel := context.WithCancel(t.Context())
	defer cancel()
	unanswered := make(chan error, 1)
	task.Background("ask the silent one", func() { unanswered <- ask(patient, silent) })
	testkit.Eventually(t, time.Minute, func() bool { return silent.Counts().Requests > before }, "it was not asked")

	began := time.Now()
	group, _ := task.New(t.Context())
	for range asks {
		group.Go("ask the busy one", func(ctx context.Context) error { return ask(ctx, busy) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < asks*slow {
		t.Errorf("%d slow requests at one BMC took %v", asks, took)
	}
	if n := busy.Counts().AtOnce; n != 1 {
		t.Errorf("%d requests at once at one BMC", n)
	}
	select {
	case err := <-unanswered:
		t.Errorf("the silent one ended before the busy one: %v", err)
		return
	default:
	}
	cancel()
	silent.Misbehave(lab.Faults{}) // so that it answers the log-out at the end
	if err := <-unanswered; !errors.Is(err, context.Canceled) {
		t.Errorf("the silent one: %v", err)
	}
}

// A BMC that refuses has answered: its session goes on, and so does everything else.
func TestRefusalIsAnAnswer(t *testing.T) {
	t.Parallel()
	c := newChassis(true)
	c.Info.UEFI = false
	for name, svc := range services(t, c) {
		p := newProvider(t, newSafe(password), nil)
		for range 3 {
			if _, err := p.SetBootDevice(t.Context(), target(svc.endpoint), cause("c"), provider.BootHTTP); !errors.Is(err,
				effect.ErrUnsupported) {
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
