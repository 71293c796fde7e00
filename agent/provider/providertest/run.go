// Package providertest is the one set of tests that every provider must pass, for the capabilities it has.
package providertest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/provider"
)

// Subject is a provider to test and a machine of it that is on, and that the tests may do anything to.
type Subject struct {
	Provider provider.Base
	Target   provider.Target
	// Digest of an image that the provider can write, as "sha256:<hex>".
	Digest string
	// Methods are those that the machine can boot by from the network. None: all of them. The others must be refused.
	Methods []boot.Method
	// Within is how long an accepted effect may take until it can be read back. 0: ten seconds.
	Within time.Duration
}

// Run tests a new Subject for each capability. A provider without any is a failure.
func Run(t *testing.T, factory func(t *testing.T) Subject) {
	t.Helper()
	t.Run("base", func(t *testing.T) { base(t, factory(t)) })
	t.Run("inspect", with(factory, inspect))
	t.Run("power", with(factory, power))
	t.Run("reboot", with(factory, reboot))
	t.Run("netboot", with(factory, netboot))
	t.Run("imaging", with(factory, imaging))
	t.Run("configure", with(factory, configure))
}

// with runs a test if the provider has the capability C; that it then isn't offered either is base's to see.
func with[C any](factory func(t *testing.T) Subject, test func(*testing.T, Subject, C)) func(*testing.T) {
	return func(t *testing.T) {
		s := factory(t)
		if c, ok := s.Provider.(C); ok {
			test(t, s, c)
		}
	}
}

func (s Subject) effect(command string) effect.Cause {
	return effect.Cause{CommandID: command, OperationID: "op-" + command, MachineID: s.Target.MachineID, Attempt: 1}
}

// eventually polls, because the world of a provider sends no signals.
func (s Subject) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	within := s.Within
	if within == 0 {
		within = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("not within %v: %s", within, what)
		case <-tick.C:
		}
	}
}

func must(t *testing.T, doing string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", doing, err)
	}
}

func mustBe(t *testing.T, doing string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", doing, err, want)
	}
}

func canceled(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// base checks that offered capabilities work, and that missing ones are refused.
func base(t *testing.T, s Subject) {
	caps := provider.Capabilities(s.Provider)
	if s.Provider.Name() == "" || len(caps) == 0 || !slices.IsSorted(caps) {
		t.Errorf("name %q, capabilities %q", s.Provider.Name(), caps)
	}
	h := provider.AsHost(s.Provider, s.Target)
	for capability, try := range map[string]func(context.Context) error{
		provider.CapInspect: func(ctx context.Context) error { _, err := h.Identity(ctx); return err },
		host.CapReboot:      func(ctx context.Context) error { return h.Reboot(ctx, s.effect("x"), boot.RebootForced) },
		host.CapNetboot:     func(ctx context.Context) error { return h.ClearBootNext(ctx, s.effect("x")) },
		host.CapReconfig:    func(ctx context.Context) error { return h.SetHostname(ctx, s.effect("x"), "x") },
		host.CapRepave: func(ctx context.Context) error {
			_, err := h.Repave(ctx, s.effect("x"), host.RepaveRequest{Digest: s.Digest}, nil)
			return err
		},
	} {
		want := context.Canceled
		if !slices.Contains(caps, capability) {
			want = effect.ErrUnsupported
		}
		mustBe(t, capability+" after the context has ended", try(canceled(t)), want)
	}
}

func inspect(t *testing.T, s Subject, p provider.Inspect) {
	id, err := p.Identity(t.Context(), s.Target)
	must(t, "read identity", err)
	again, err := p.Identity(t.Context(), s.Target)
	must(t, "read identity again", err)
	if id != again || id.BootID == "" || id.Simulated != s.Provider.Simulated() {
		t.Errorf("identity %+v, then %+v", id, again)
	}
	doc, err := p.Inventory(t.Context(), s.Target)
	must(t, "take inventory", err)
	if doc.Simulated != s.Provider.Simulated() || doc.OS.BootID != id.BootID {
		t.Errorf("inventory %+v of %+v", doc, id)
	}
}

func power(t *testing.T, s Subject, p provider.Power) {
	is := func(want provider.PowerState) func() bool {
		return func() bool {
			got, err := p.PowerState(t.Context(), s.Target)
			return err == nil && got == want
		}
	}
	s.eventually(t, "on at first", is(provider.PowerOn))
	// Each twice: the second finds it done.
	for _, want := range []provider.PowerState{provider.PowerOff, provider.PowerOff, provider.PowerOn, provider.PowerOn} {
		must(t, "switch "+string(want), p.SetPower(t.Context(), s.Target, s.effect("power"), want))
		s.eventually(t, "power reads "+string(want), is(want))
	}
	mustBe(t, "switch to unknown", p.SetPower(t.Context(), s.Target, s.effect("power"), provider.PowerUnknown),
		effect.ErrInvalid)
	mustBe(t, "switch after the end", p.SetPower(canceled(t), s.Target, s.effect("power"), provider.PowerOff),
		context.Canceled)
	s.eventually(t, "still on", is(provider.PowerOn))
}

func reboot(t *testing.T, s Subject, p provider.Reboot) {
	mustBe(t, "reboot soon", p.Reboot(t.Context(), s.Target, s.effect("reboot"), "soon"), effect.ErrInvalid)
	inside, ok := s.Provider.(provider.Inspect)
	if !ok {
		must(t, "reboot", p.Reboot(t.Context(), s.Target, s.effect("reboot"), boot.RebootForced))
		return
	}
	for _, mode := range []boot.RebootMode{boot.RebootGraceful, boot.RebootForced} {
		before, err := inside.Identity(t.Context(), s.Target)
		must(t, "read identity", err)
		must(t, "reboot "+string(mode), p.Reboot(t.Context(), s.Target, s.effect("reboot"), mode))
		s.eventually(t, "another boot id", func() bool {
			now, err := inside.Identity(t.Context(), s.Target)
			return err == nil && now.BootID != before.BootID
		})
	}
}

func netboot(t *testing.T, s Subject, p provider.Netboot) {
	for _, method := range []boot.Method{boot.PXE, boot.HTTP} {
		if len(s.Methods) > 0 && !slices.Contains(s.Methods, method) {
			_, err := p.SetBootNext(t.Context(), s.Target, s.effect("netboot"), boot.Target{Method: method})
			mustBe(t, "boot by "+string(method), err, effect.ErrUnsupported)
			continue
		}
		old, err := p.BootNext(t.Context(), s.Target)
		must(t, "read boot entry", err)
		change, err := p.SetBootNext(t.Context(), s.Target, s.effect("netboot"), boot.Target{Method: method})
		must(t, "set boot entry", err)
		now, err := p.BootNext(t.Context(), s.Target)
		must(t, "read boot entry back", err)
		if change.Old != old || change.New != now || !now.Set {
			t.Errorf("%s: entry %+v, then %+v, change %+v", method, old, now, change)
		}
	}
	for range 2 {
		must(t, "clear boot entry", p.ClearBootNext(t.Context(), s.Target, s.effect("netboot")))
		if now, err := p.BootNext(t.Context(), s.Target); err != nil || now.Set {
			t.Errorf("after clearing: %+v, %v", now, err)
		}
	}
	_, err := p.SetBootNext(t.Context(), s.Target, s.effect("netboot"), boot.Target{Method: "floppy"})
	mustBe(t, "boot from a floppy", err, effect.ErrInvalid)
}

func imaging(t *testing.T, s Subject, p provider.Imaging) {
	last := -1
	progress := func(r host.RepaveProgress) {
		if r.Percent < last || r.Percent > 100 || r.Stage == "" {
			t.Errorf("progress %+v after %d %%", r, last)
		}
		last = r.Percent
	}
	ev, err := p.Repave(t.Context(), s.Target, s.effect("repave"), host.RepaveRequest{Digest: s.Digest, Nonce: "n-1"},
		progress)
	must(t, "repave", err)
	now, err := p.DiskImage(t.Context(), s.Target)
	must(t, "read disk back", err)
	if ev.Image != now || now.Digest != s.Digest || now.Nonce != "n-1" || ev.Simulated != s.Provider.Simulated() ||
		last != 100 {
		t.Errorf("evidence %+v, disk %+v, last progress %d %%", ev, now, last)
	}
	_, err = p.Repave(t.Context(), s.Target, s.effect("repave"), host.RepaveRequest{Digest: "none"}, nil)
	mustBe(t, "repave without a digest", err, effect.ErrInvalid)
	if after, err := p.DiskImage(t.Context(), s.Target); err != nil || after != now {
		t.Errorf("a refused repave left %+v, %v", after, err)
	}
}

func configure(t *testing.T, s Subject, p provider.Configure) {
	for range 2 {
		must(t, "set host name", p.SetHostname(t.Context(), s.Target, s.effect("name"), "conformance"))
		if name, err := p.Hostname(t.Context(), s.Target); err != nil || name != "conformance" {
			t.Errorf("host name %q, %v", name, err)
		}
	}
	mustBe(t, "set a bad host name", p.SetHostname(t.Context(), s.Target, s.effect("name"), "a b"), effect.ErrInvalid)
	policy := firewall.Policy{
		Generation: 1, InputDefault: firewall.VerdictDrop, Allow: []firewall.AllowRule{{Protocol: "tcp", FromPort: 22}},
		Controllers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:50052")},
	}
	for range 2 {
		must(t, "apply firewall", p.ApplyFirewall(t.Context(), s.Target, s.effect("fw"), policy))
		if state, err := p.Firewall(t.Context(), s.Target); err != nil || !state.Holds(policy) {
			t.Errorf("firewall %+v, %v", state, err)
		}
	}
	other := policy
	other.SMTPEgressAllowed = true
	mustBe(t, "reuse a generation", p.ApplyFirewall(t.Context(), s.Target, s.effect("fw"), other), effect.ErrInvalid)
	mustBe(t, "apply an empty policy", p.ApplyFirewall(t.Context(), s.Target, s.effect("fw"), firewall.Policy{}),
		effect.ErrInvalid)
	if state, err := p.Firewall(t.Context(), s.Target); err != nil || !state.Holds(policy) {
		t.Errorf("after refusals: %+v, %v", state, err)
	}
	for range 2 {
		must(t, "remove firewall", p.RemoveFirewall(t.Context(), s.Target, s.effect("fw")))
		if state, err := p.Firewall(t.Context(), s.Target); err != nil || state.Present {
			t.Errorf("after removing: %+v, %v", state, err)
		}
	}
}
