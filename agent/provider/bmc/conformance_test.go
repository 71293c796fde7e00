package bmc_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/boot"
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
