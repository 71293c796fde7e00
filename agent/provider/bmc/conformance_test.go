package bmc_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/agent/provider/providertest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(t *testing.T) providertest.Subject{
		"redfish": func(t *testing.T) providertest.Subject {
			return providertest.Subject{Target: target(startRedfish(t, newChassis(true)).Endpoint())}
		},
		"ipmi": func(t *testing.T) providertest.Subject {
			return providertest.Subject{
				Target: target(startIPMI(t, newChassis(true)).Endpoint()), Methods: []boot.Method{boot.PXE},
			}
		},
		"probed redfish": func(t *testing.T) providertest.Subject {
			return providertest.Subject{Target: target(startRedfish(t, newChassis(true)).Addr())}
		},
		"probed ipmi": func(t *testing.T) providertest.Subject {
			return providertest.Subject{
				Target: target(startIPMI(t, newChassis(true)).Addr()), Methods: []boot.Method{boot.PXE},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			providertest.Run(t, func(t *testing.T) providertest.Subject {
				s := start(t)
				s.Provider, s.Within = newProvider(t, newSafe(password), nil), 20*time.Second
				return s
			})
		})
	}
}

// What one reading and one whole cycle cost, with a BMC that answers at once.
func BenchmarkBMC(b *testing.B) {
	c := newChassis(true)
	r, sim := startRedfish(b, c), startIPMI(b, c)
	p := newProvider(b, newSafe(password), nil)
	for _, tc := range []struct{ name, endpoint string }{{"redfish", r.Endpoint()}, {"ipmi", sim.Endpoint()}} {
		run := func(name string, fn func(context.Context, provider.Target) error) {
			b.Run(tc.name+"/"+name, func(b *testing.B) {
				for b.Loop() {
					if err := fn(b.Context(), target(tc.endpoint)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("read", func(ctx context.Context, t provider.Target) error { _, err := p.PowerState(ctx, t); return err })
		run("cycle", func(ctx context.Context, t provider.Target) error {
			return p.Reboot(ctx, t, cause("c"), boot.RebootForced)
		})
	}
}

// TestHardwareIsReadWithOneLogin: a BMC that takes the password and then answers 401 does not get it again.
func TestHardwareIsReadWithOneLogin(t *testing.T) {
	t.Parallel()
	r := startRedfish(t, newChassis(true))
	p := newProvider(t, newSafe(password), nil)
	creds := bmc.Credentials{Username: user, Password: password, Version: 1, Allowed: []string{"127.0.0.0/8"}}
	found, err := p.Hardware(t.Context(), r.Endpoint(), "rack", creds, func() {})
	if err != nil || found.Serial != "LAB-1" || len(found.MACs) != 1 {
		t.Errorf("read %+v, %v", found, err)
	}
	if n := r.Counts(); n.Sessions != 1 || n.Open != 0 {
		t.Errorf("after the first: %+v", n)
	}
	_, err = p.Hardware(t.Context(), r.Endpoint(), "rack", creds, r.ForgetSessions)
	if n := r.Counts(); !errors.Is(err, provider.ErrCredentials) || n.Sessions != 2 {
		t.Errorf("a session that ended: %v, %+v", err, n)
	}
}
