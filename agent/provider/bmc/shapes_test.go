package bmc_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/redfish"
	lab "github.com/ingot-metal/ingot/lab/bmc"
)

// second is the second result.
func second[A, B any](_ A, b B) B { return b }

func startShape(t *testing.T, c lab.Chassis, s lab.Shape) *lab.Redfish {
	t.Helper()
	r, err := lab.StartRedfish(t.Context(), lab.RedfishConfig{Chassis: c, Listen: "127.0.0.1:0", User: user,
		Password: password, Shape: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// shapes are services as they were recorded or described, and the proof of a boot device that was set there.
var shapes = map[string]struct {
	shape  lab.Shape
	proof  provider.BootProof
	device provider.BootDevice
	booted lab.Boot
}{
	"plain":            {lab.Shape{}, provider.BootRead, provider.BootPXE, lab.BootPXE},
	"iDRAC9":           {lab.IDRAC9, provider.BootRead, provider.BootPXE, lab.BootPXE},
	"iDRAC10":          {lab.IDRAC10, provider.BootPending, provider.BootPXE, lab.BootPXE},
	"AMI DGX":          {lab.AMIDGX, provider.BootPending, provider.BootPXE, lab.BootPXE},
	"BlueField":        {lab.BlueField, provider.BootPending, provider.BootHTTP, lab.BootHTTP},
	"GB200":            {lab.GB200, provider.BootPending, provider.BootPXE, lab.BootPXE},
	"Supermicro mode":  {lab.SupermicroMode, provider.BootRead, provider.BootPXE, lab.BootPXE},
	"iLO":              {lab.ILO, provider.BootRead, provider.BootPXE, lab.BootPXE},
	"trailing slashes": {lab.Slashed, provider.BootRead, provider.BootPXE, lab.BootPXE},
	"no sessions":      {lab.NoSessions, provider.BootRead, provider.BootPXE, lab.BootPXE},
	"paged":            {lab.Paged, provider.BootRead, provider.BootPXE, lab.BootPXE},
	"ThinkSystem":      {lab.ThinkSystem, provider.BootRead, provider.BootPXE, lab.BootPXE},
	"sushy-tools":      {lab.SushyTools, provider.BootStays, provider.BootPXE, lab.BootPXE},
	"asynchronous":     {lab.Asynchronous, provider.BootOrdered, provider.BootPXE, lab.BootPXE},
}

// Wherever a service keeps the override: it is written there, said to be in effect only where it is, and the next boot
// is from the device.
func TestBootDeviceOfEveryShape(t *testing.T) {
	t.Parallel()
	for name, tc := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChassis(true)
			r := startShape(t, c, tc.shape)
			p := newProvider(t, newSafe(password), nil)
			tg := target(r.Endpoint())
			proof, err := p.SetBootDevice(t.Context(), tg, cause("c"), tc.device)
			if err != nil || proof != tc.proof {
				t.Fatalf("boot from %s: %q, %v; want %q", tc.device, proof, err, tc.proof)
			}
			var cycle provider.Cycle
			keep := func(provider.Cycle) error { return nil }
			if err := p.TurnOff(t.Context(), tg, cause("c"), false, &cycle, keep); err != nil {
				t.Fatal(err)
			}
			if err := p.TurnOn(t.Context(), tg, cause("c"), &cycle, keep); err != nil {
				t.Fatal(err)
			}
			if booted := c.Booted(); booted[len(booted)-1] != tc.booted {
				t.Errorf("booted from %q, then from %q", booted[:len(booted)-1], booted[len(booted)-1])
			}
			if now, err := p.BootNext(t.Context(), tg); err != nil || now.Set != (tc.proof == provider.BootStays) {
				t.Errorf("after the boot: %+v, %v", now, err)
			}
		})
	}
}

// What was chosen is taken back, also where that takes more than one word.
func TestBootDeviceIsTakenBack(t *testing.T) {
	t.Parallel()
	for name, tc := range shapes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startShape(t, newChassis(true), tc.shape)
			p := newProvider(t, newSafe(password), nil)
			tg := target(r.Endpoint())
			for _, device := range []provider.BootDevice{tc.device, provider.BootDefault} {
				_, err := p.SetBootDevice(t.Context(), tg, cause("c"), device)
				if device == provider.BootDefault && tc.proof == provider.BootStays {
					wantReason(t, "a service that knows no way back", err, "BMC_NO_EFFECT", true)
					return
				}
				if err != nil {
					t.Fatalf("boot from %q: %v", device, err)
				}
			}
			if now, err := p.BootNext(t.Context(), tg); err != nil || now.Set {
				t.Errorf("after taking it back: %+v, %v", now, err)
			}
		})
	}
}

// An order that doesn't name the mode makes some boards boot by BIOS compatibility.
func TestBootModeIsKept(t *testing.T) {
	t.Parallel()
	r := startShape(t, newChassis(true), lab.SupermicroMode)
	p := newProvider(t, newSafe(password), nil)
	if _, err := p.SetBootDevice(t.Context(), target(r.Endpoint()), cause("c"), provider.BootPXE); err != nil {
		t.Fatal(err)
	}
	if mode := r.BootMode(); mode != "UEFI" {
		t.Errorf("the next boot is in mode %q", mode)
	}
}

// Every shape of the laboratory is tried here; the slow one has a test of its own.
func TestEveryShapeIsTried(t *testing.T) {
	t.Parallel()
	for name := range lab.Shapes {
		if _, tried := shapes[name]; !tried && name != "slow" {
			t.Errorf("%s is tried nowhere", name)
		}
	}
}

// Of several systems, the one that the endpoint names is taken; one that isn't there is refused, with the names of
// those that are.
func TestEndpointNamesTheSystem(t *testing.T) {
	t.Parallel()
	r := startShape(t, newChassis(true), lab.GB200)
	p := newProvider(t, newSafe(password), nil)
	for _, name := range []string{"System_0", "HGX_Baseboard_0"} {
		if state, err := p.PowerState(t.Context(), target(r.Endpoint()+"/redfish/v1/Systems/"+name)); err != nil ||
			state != provider.PowerOn {
			t.Errorf("%s: %v, %v", name, state, err)
		}
	}
	err := p.SetPower(t.Context(), target(r.Endpoint()+"/redfish/v1/Systems/HGX_Baseboard_0"), cause("c"),
		provider.PowerOff)
	if !errors.Is(err, effect.ErrUnsupported) {
		t.Errorf("switch a board that can't be: %v", err)
	}
	_, err = p.PowerState(t.Context(), target(r.Endpoint()+"/redfish/v1/Systems/DGX"))
	if effect.ReasonOf(err) != redfish.ReasonWhichSystem ||
		!strings.Contains(err.Error(), "redfish://HOST/redfish/v1/Systems/System_0") {
		t.Errorf("a system that isn't there: %v", err)
	}
}
