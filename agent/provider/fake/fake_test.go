package fake_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/fake"
	"github.com/ingot-metal/ingot/agent/provider/providertest"
)

func newFake(t *testing.T, cfg fake.Config) *fake.Provider {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	p, err := fake.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var digest = "sha256:" + strings.Repeat("5", 64)

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"at once": 0, "after a while": 30 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Run(t, func(t *testing.T) providertest.Subject {
				return providertest.Subject{
					Provider: newFake(t, fake.Config{Delay: delay, RepaveTime: delay}),
					Target:   provider.Target{MachineID: "m-1"}, Digest: digest,
				}
			})
		})
	}
}

// powerOnly has one capability and nothing else.
type powerOnly struct {
	provider.Base
	provider.Power
}

func TestConformanceOfLess(t *testing.T) {
	t.Parallel()
	providertest.Run(t, func(t *testing.T) providertest.Subject {
		p := newFake(t, fake.Config{})
		return providertest.Subject{Provider: powerOnly{p, p}, Target: provider.Target{MachineID: "m-1"}, Digest: digest}
	})
	p := newFake(t, fake.Config{})
	less := powerOnly{p, p}
	if caps := provider.Capabilities(less); !slices.Equal(caps, []string{provider.CapPower}) {
		t.Errorf("capabilities %q", caps)
	}
	h := provider.AsHost(less, provider.Target{MachineID: "m-1"})
	err := h.Reboot(t.Context(), effect.Cause{CommandID: "c"}, boot.RebootForced)
	if !errors.Is(err, effect.ErrUnsupported) || effect.ReasonOf(err) != provider.ReasonNotOfProvider ||
		len(h.Capabilities()) != 0 {
		t.Errorf("reboot: %v; capabilities %q", err, h.Capabilities())
	}
	if records, err := sim.ReadJournal(p.World().Dir()); err != nil || len(records) != 0 {
		t.Errorf("a refusal reached the world: %+v, %v", records, err)
	}
}

func TestEffectsAreJournaledUnderTheirCommand(t *testing.T) {
	t.Parallel()
	p := newFake(t, fake.Config{Script: "m-2/reboot:fail-before@1, m-2/reboot:fail-after@2, m-3/repave:lie"})
	for i, id := range []string{"m-1", "m-2", "m-2", "m-2"} {
		h := provider.AsHost(p, provider.Target{MachineID: id})
		err := h.Reboot(t.Context(), effect.Cause{CommandID: []string{"a", "b", "c", "d"}[i], MachineID: id},
			boot.RebootForced)
		if failed := errors.Is(err, sim.ErrInjected); failed != (i == 1 || i == 2) {
			t.Errorf("reboot %d: %v", i, err)
		}
	}
	h := provider.AsHost(p, provider.Target{MachineID: "m-3"})
	ev, err := h.Repave(t.Context(), effect.Cause{CommandID: "e"}, host.RepaveRequest{Digest: digest}, nil)
	if err != nil || ev.Image.Digest != digest {
		t.Errorf("the liar says %+v, %v", ev, err)
	}
	if image, err := h.DiskImage(t.Context()); err != nil || image.Digest != "" {
		t.Errorf("the liar's disk holds %+v, %v", image, err)
	}
	records, err := sim.ReadJournal(p.World().Dir())
	if err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]int{"a": 1, "b": 0, "c": 1, "d": 1, "e": 0} {
		if got := sim.CountByCommand(records)[command]; got != want {
			t.Errorf("command %s had %d effects, want %d", command, got, want)
		}
	}
}

// The same machine from inside and from outside.
func TestAgentAndProviderShareAMachine(t *testing.T) {
	t.Parallel()
	p := newFake(t, fake.Config{})
	inside, err := p.World().Host("m-1", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = inside.Close() })
	if err := inside.SetHostname(t.Context(), effect.Cause{CommandID: "a"}, "seen"); err != nil {
		t.Fatal(err)
	}
	target := provider.Target{MachineID: "m-1"}
	if name, err := p.Hostname(t.Context(), target); err != nil || name != "seen" {
		t.Errorf("from outside: %q, %v", name, err)
	}
	if err := p.SetPower(t.Context(), target, effect.Cause{CommandID: "b"}, provider.PowerOff); err != nil {
		t.Fatal(err)
	}
	if _, err := inside.Identity(t.Context()); !errors.Is(err, sim.ErrDown) {
		t.Errorf("from inside a machine that is off: %v", err)
	}
	<-inside.Down()
}

func TestBadScript(t *testing.T) {
	t.Parallel()
	if _, err := fake.New(fake.Config{Dir: t.TempDir(), Script: "x"}); err == nil {
		t.Error("accepted")
	}
}
